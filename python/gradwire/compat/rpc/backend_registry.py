"""Back ends by name; `BackendType` is always the present one."""

from typing import Any

from gradwire import backends
from gradwire.backends import backend_registered, construct_rpc_backend_options, init_backend, register_backend
from gradwire.backends import init_tensorpipe as _tensorpipe_init_backend_handler
from gradwire.compat._refused import getter_of
from gradwire.options import TensorPipeRpcBackendOptions

__all__ = [
    "_tensorpipe_init_backend_handler",
    "backend_registered",
    "construct_rpc_backend_options",
    "init_backend",
    "register_backend",
]


def _tensorpipe_construct_rpc_backend_options_handler(
    rpc_timeout: float, init_method: str, **options: Any
) -> TensorPipeRpcBackendOptions:
    return TensorPipeRpcBackendOptions(rpc_timeout=rpc_timeout, init_method=init_method, **options)


_get_refused = getter_of(__name__)


def __getattr__(name: str) -> Any:
    return backends.BackendType if name == "BackendType" else _get_refused(name)
