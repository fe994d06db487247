"""DistributedOptimizer: one local optimizer on each worker that owns parameters, stepped together."""

import threading
from collections.abc import Iterable
from typing import Any

import torch

from gradwire import autograd, rpc
from gradwire._functions import shown_as
from gradwire.futures import Future, collect_all, wait_all

__all__ = ["DistributedOptimizer"]

# `.grad` is lent to one step at a time in a process: optimizers may share parameters.
_step_lock = threading.Lock()


class _LocalOptimizer:
    """A torch optimizer beside the parameters that it steps."""

    def __init__(
        self, optimizer_class: type[torch.optim.Optimizer], parameters: list[torch.Tensor], args: Any, kwargs: Any
    ):
        self.parameters = parameters
        self.optim = optimizer_class(parameters, *args, **kwargs)

    def step(self, context_id: int) -> None:
        """Steps with the gradients of a context; a parameter without one there is left as it is."""
        gradients = autograd.get_gradients(context_id)
        with _step_lock:
            before = [parameter.grad for parameter in self.parameters]
            try:
                for parameter in self.parameters:
                    parameter.grad = gradients.get(parameter)
                self.optim.step()
            finally:
                for parameter, gradient in zip(self.parameters, before, strict=True):
                    parameter.grad = gradient


@shown_as("DistributedOptimizer")
def _new_local_optimizer(
    optimizer_class: type[torch.optim.Optimizer], rrefs: list[rpc.RRef[torch.Tensor]], args: Any, kwargs: Any
) -> _LocalOptimizer:
    return _LocalOptimizer(optimizer_class, [rref.local_value() for rref in rrefs], args, kwargs)


@shown_as("DistributedOptimizer.step")
def _step(rref: rpc.RRef[_LocalOptimizer], context_id: int) -> None:
    rref.local_value().step(context_id)


class DistributedOptimizer:
    """Optimizes parameters on several workers, each by an optimizer of its own beside them.

    Args:
        optimizer_class: a class of `torch.optim`, or any with the same interface; found by name on all owners.
        params_rref: references to the parameters. Optimizers do not cross languages: all owners run Python.
        args, kwargs: for the class, after the parameters.

    Raises what the class raises on any owner.

    Attributes:
        remote_optimizers: a reference to each owner's own, whose `optim` is of the class, for schedulers and the like.
    """

    def __init__(
        self,
        optimizer_class: type[torch.optim.Optimizer],
        params_rref: Iterable[rpc.RRef[torch.Tensor]],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        by_owner: dict[rpc.WorkerInfo, list[rpc.RRef[torch.Tensor]]] = {}
        for rref in params_rref:
            if not isinstance(rref, rpc.RRef):
                raise TypeError(
                    f"DistributedOptimizer takes RRefs to parameters, all with the same options, not a "
                    f"{type(rref).__name__}; RRef(parameter) refers to one that lives here"
                )
            by_owner.setdefault(rref.owner(), []).append(rref)
        if not by_owner:
            raise ValueError("there are no parameters to optimize")
        self.remote_optimizers = [
            rpc.remote(owner, _new_local_optimizer, args=(optimizer_class, rrefs, args, kwargs))
            for owner, rrefs in by_owner.items()
        ]
        wait_all([self._ready(optimizer) for optimizer in self.remote_optimizers])

    @staticmethod
    def _ready(optimizer: rpc.RRef[Any]) -> Future[Any]:
        made: Future[Any] = Future()
        optimizer._await_creation(made)
        return made

    def step(self, context_id: int) -> None:
        """Steps all of them with the gradients of a context, and waits for all. Then raises what the first one raised.

        Until it returns, on whichever way, some owner may be stepping: the context must be there so long.
        """
        steps = [
            rpc.rpc_async(optimizer.owner(), _step, args=(optimizer, context_id))
            for optimizer in self.remote_optimizers
        ]
        collect_all(steps).wait()
        wait_all(steps)
