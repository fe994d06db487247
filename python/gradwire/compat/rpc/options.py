"""The options of init_rpc."""

from gradwire._C import TransportOptions as _TensorPipeRpcBackendOptionsBase
from gradwire.compat._refused import getter_of
from gradwire.options import RpcBackendOptions, TensorPipeRpcBackendOptions

__all__ = ["RpcBackendOptions", "TensorPipeRpcBackendOptions", "_TensorPipeRpcBackendOptionsBase"]

_is_tensorpipe_available = True  # under that name gradwire's own transport

__getattr__ = getter_of(__name__)
