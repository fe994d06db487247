"""Stands where `torch.distributed.nn.api.remote_module` is."""

from gradwire.nn import _TRAVELLING, RemoteModule

__all__ = ["RemoteModule"]

_RemoteModule = RemoteModule
_REMOTE_MODULE_PICKLED_ATTRIBUTES = _TRAVELLING
