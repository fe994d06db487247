"""The options of init_rpc."""

from gradwire.options import RpcBackendOptions, TensorPipeRpcBackendOptions

__all__ = ["RpcBackendOptions", "TensorPipeRpcBackendOptions"]
