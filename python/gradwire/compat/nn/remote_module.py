"""Stands where `torch.distributed.nn.api.remote_module` is."""

from gradwire.compat._refused import getter_of
from gradwire.compat.rpc.internal import _internal_rpc_pickler
from gradwire.nn import _TRAVELLING, RemoteModule
from gradwire.nn import _create as _create_module
from gradwire.nn import _parameters as _param_rrefs

__all__ = ["RemoteModule", "_create_module", "_internal_rpc_pickler", "_param_rrefs"]

_RemoteModule = RemoteModule
_REMOTE_MODULE_PICKLED_ATTRIBUTES = _TRAVELLING

__getattr__ = getter_of(__name__)
