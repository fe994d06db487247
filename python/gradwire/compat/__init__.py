"""The names of `torch.distributed.rpc` and its neighbours, over gradwire.

What programs written to those names need beyond gradwire's own API lives here and nowhere else.
"""

from gradwire.compat.redirection import install, is_installed

__all__ = ["install", "is_installed"]
