"""Back ends by name; `BackendType` is always the present one."""

from typing import Any

from gradwire import backends
from gradwire.backends import backend_registered, construct_rpc_backend_options, init_backend, register_backend

__all__ = [
    "backend_registered",
    "construct_rpc_backend_options",
    "init_backend",
    "register_backend",
]


def __getattr__(name: str) -> Any:
    if name == "BackendType":
        return backends.BackendType
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
