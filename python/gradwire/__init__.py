"""Remote calls, remote references and distributed autograd for PyTorch.

`gradwire.rpc` starts this process's worker and calls others; `gradwire.autograd` and `gradwire.optim` train across
them. Importing starts no thread.
"""

from gradwire import autograd, functions, futures, optim, rpc
from gradwire.errors import Error, RemoteError

__all__ = ["Error", "RemoteError", "autograd", "functions", "futures", "optim", "rpc"]
