"""DistributedOptimizer: one local optimizer on each worker that owns parameters, stepped together."""

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from gradwire import autograd, rpc
from gradwire._functions import shown_as
from gradwire.futures import Future, collect_all, wait_all

__all__ = ["DistributedOptimizer"]

# `.grad` of a parameter is lent to one step at a time, as optimizers may share parameters. Those of one optimizer have
# one lock, but for those that had another before.
_locks: Any = WeakIdKeyDictionary()
_locks_lock = threading.Lock()


def _locks_of(parameters: list[torch.Tensor]) -> list[threading.Lock]:
    """In the order in which all are to take them."""
    own = threading.Lock()
    with _locks_lock:
        locks = {_locks.setdefault(parameter, own) for parameter in parameters}
    return sorted(locks, key=id)


def _needs_arguments(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:  # nothing is known of it
        return False
    return False


class _LocalOptimizer:
    """A torch optimizer beside the parameters that it steps."""

    def __init__(
        self, optimizer_class: type[torch.optim.Optimizer], parameters: list[torch.Tensor], args: Any, kwargs: Any
    ):
        self.parameters = parameters
        self.optim = optimizer_class(parameters, *args, **kwargs)
        if _needs_arguments(self.optim.step):
            raise TypeError(
                f"{optimizer_class.__name__}.step() needs a closure that computes the loss again, which "
                f"DistributedOptimizer does not give: take a class that steps with the gradients alone"
            )
        self.locks = _locks_of(parameters)

    def step(self, context_id: int) -> None:
        """Steps with the gradients of a context; a parameter without one there is left as it is."""
        gradients = autograd.get_gradients(context_id)
        with contextlib.ExitStack() as held:
            for lock in self.locks:
                held.enter_context(lock)
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
        steps = [self._started(optimizer, context_id) for optimizer in self.remote_optimizers]
        collect_all(steps).wait()
        wait_all(steps)

    @staticmethod
    def _started(optimizer: rpc.RRef[_LocalOptimizer], context_id: int) -> Future[None]:
        """A step under way; a failed one where it could not be sent, as there are others to wait for."""
        try:
            return rpc.rpc_async(optimizer.owner(), _step, args=(optimizer, context_id))
        except Exception as error:
            failed: Future[None] = Future()
            failed.set_exception(error)
            return failed
