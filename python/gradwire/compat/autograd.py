"""Stands where `torch.distributed.autograd` is."""

from gradwire import _default
from gradwire.autograd import backward, context, get_gradients, is_available

__all__ = ["backward", "context", "get_gradients", "is_available"]


def _init(worker_id: int) -> None:
    """Called by init_rpc before the worker is made, which brings its autograd along."""


def _get_debug_info() -> dict[str, str]:
    counts = _default.required().counts()
    return {
        "num_current_backward_passes": str(counts["backward_passes"]),
        "num_autograd_contexts": str(counts["autograd_contexts"]),
    }
