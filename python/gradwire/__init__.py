"""Remote calls, remote references and distributed autograd for PyTorch.

`gradwire.rpc` starts this process's worker and calls others; `gradwire.autograd` and `gradwire.optim` train across
them; `gradwire.nn` has a module that lives elsewhere. Importing starts no thread.
"""

from gradwire import autograd, functions, futures, nn, optim, rpc
from gradwire.errors import Error, RemoteError
from gradwire.rpc import all_gather, barrier, get_worker_infos

__all__ = [
    "Error",
    "RemoteError",
    "all_gather",
    "autograd",
    "barrier",
    "functions",
    "futures",
    "get_worker_infos",
    "install",
    "nn",
    "optim",
    "rpc",
]


def install() -> None:
    """Puts gradwire where torch keeps its RPC, distributed autograd, DistributedOptimizer and RemoteModule.

    Call it before the program imports those, or it warns; `python -m gradwire script.py` does.
    """
    from gradwire.compat import install as install_now

    install_now()
