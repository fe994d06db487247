"""TorchScript functions as callees, script modules as values."""

from collections import OrderedDict
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from gradwire import Error, autograd, functions, rpc


@torch.jit.script
def scale(x: Tensor, by: float = 2.0) -> Tensor:
    return x * by


@torch.jit.script
def fails(x: Tensor) -> Tensor:
    if x.numel() >= 0:
        raise ValueError("no good")
    return x


@torch.jit.script
def forks(x: Tensor) -> Tensor:
    return torch.jit.wait(torch.jit.fork(scale, x)) + 1


class Pair(NamedTuple):
    name: str
    value: Tensor


@torch.jit.script
def pair(values: dict[str, list[Tensor]], key: str | None = None) -> Pair:
    name = "a" if key is None else key
    return Pair(name, values[name][0])


@torch.jit.script
def nothing() -> None:
    return None


@functions.async_execution
@torch.jit.script
def later(x: Tensor) -> torch.jit.Future[Tensor]:
    return torch.jit.fork(scale, x)


@functions.async_execution
@torch.jit.script
def no_future(x: Tensor) -> Tensor:
    return x


class Spins(torch.nn.Module):
    """Runs until another thread has set the flag."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("flag", torch.zeros(()))

    def forward(self) -> int:
        count = 0
        while self.flag.item() == 0.0:
            count += 1
        return count


class Model(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((size,), 3.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x

    @torch.jit.export
    def plus(self, x: Tensor, y: float = 1.0) -> Tensor:
        return self.weight + x * y


pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


def make_model(size):
    return torch.jit.script(Model(size))


def run_model(model, x):
    return model(x)


def serve_model(size):
    rpc.add_script_module("model", make_model(size))


def test_script_functions_are_called_by_all_three(group):
    def body():
        x = torch.ones(2)
        for to in ("worker1", "worker0"):
            for function, args, kwargs, expected in [
                (scale, (x,), {}, x * 2),
                (scale, (x, 3.0), {}, x * 3),
                (scale, (), {"by": 4.0, "x": x}, x * 4),
                (forks, (x,), {}, x * 2 + 1),
                (later, (x,), {}, x * 2),
            ]:
                assert torch.equal(rpc.rpc_sync(to, function, args=args, kwargs=kwargs), expected)
                assert torch.equal(rpc.rpc_async(to, function, args=args, kwargs=kwargs).wait(), expected)
                assert torch.equal(rpc.remote(to, function, args=args, kwargs=kwargs).to_here(), expected)
            assert rpc.rpc_sync(to, nothing) is None
            for result in (
                rpc.rpc_sync(to, pair, args=({"a": [x]},)),
                rpc.rpc_async(to, pair, args=(OrderedDict(b=[x]), "b")).wait(),
            ):
                assert result.name in ("a", "b")
                assert torch.equal(result.value, x)

    group(body)


def test_futures_hold_what_scripts_can_use(alone):
    @torch.jit.script
    def use(future: torch.jit.Future[Tensor]) -> Tensor:
        return torch.jit.wait(future) + 1

    x = torch.ones(2)
    assert torch.equal(use(rpc.rpc_async("me", scale, args=(x,))), x * 2 + 1)
    assert torch.equal(use(rpc.rpc_async("me", torch.add, args=(x, 1))), x + 2)
    values, indices = rpc.rpc_async("me", torch.max, args=(torch.arange(4.0), 0)).wait()
    assert (values.item(), indices.item()) == (3.0, 3)


def test_arguments_are_matched_at_the_call(alone):
    for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
        with pytest.raises(RuntimeError, match=r"scale\(\) expected at most 2"):
            call("me", scale, args=(torch.ones(1), 1.0, 2))
        with pytest.raises(RuntimeError, match="Expected a value of type 'Tensor"):
            call("me", scale, args=(10,))
        with pytest.raises(RuntimeError, match="Unknown keyword argument 'z'"):
            call("me", scale, args=(torch.ones(1),), kwargs={"z": 1})


def test_errors_of_scripts_have_their_text(alone):
    for attempt in (
        lambda: rpc.rpc_sync("me", fails, args=(torch.ones(1),)),
        rpc.rpc_async("me", fails, args=(torch.ones(1),)).wait,
        rpc.remote("me", fails, args=(torch.ones(1),)).to_here,
    ):
        with pytest.raises(RuntimeError, match="no good"):
            attempt()
    with pytest.raises(RuntimeError, match="Async functions must return an IValue of Future type, but got Tensor"):
        rpc.rpc_sync("me", no_future, args=(torch.ones(1),))


def test_scripts_run_without_the_lock(alone):
    module = torch.jit.script(Spins())
    rpc.add_script_module("spins", module)
    future = rpc.rpc_async("me", "script.spins.forward")
    module.flag.fill_(1.0)  # a script that held the lock would never let this thread come here
    assert future.wait() >= 0


def test_gradients_flow_through_scripts(group):
    def body():
        x = torch.ones(3, requires_grad=True)
        with autograd.context() as context:
            loss = rpc.rpc_sync("worker1", scale, args=(x, 5.0)).sum()
            autograd.backward(context, [loss])
            assert torch.equal(autograd.get_gradients(context)[x], torch.full((3,), 5.0))

    group(body)


def test_script_modules_travel(group):
    def body():
        model = make_model(3)
        x = torch.ones(3)
        assert torch.equal(rpc.rpc_sync("worker1", run_model, args=(model, x)), model(x))
        back = rpc.rpc_sync("worker1", make_model, args=(1000,))
        assert isinstance(back, torch.jit.ScriptModule)
        assert torch.equal(back.plus(torch.ones(1000), 2.0), torch.full((1000,), 5.0))
        there = rpc.remote("worker1", make_model, args=(3,))
        assert torch.equal(there.rpc_sync().forward(x), x * 3)
        assert torch.equal(there.rpc_async().plus(x).wait(), x + 3)
        assert isinstance(there.to_here(), torch.jit.ScriptModule)
        with pytest.raises(TypeError, match="pickle"):
            rpc.rpc_async("worker1", model.forward, args=(x,))

    group(body)


def test_methods_of_a_served_module_are_called_by_name(group):
    def body():
        rpc.rpc_sync("worker1", serve_model, args=(3,))
        x = torch.ones(3)
        assert torch.equal(rpc.rpc_sync("worker1", "script.model.forward", args=(x,)), x * 3)
        assert torch.equal(rpc.rpc_sync("worker1", "script.model.plus", args=(x,)), x + 3)
        assert torch.equal(rpc.rpc_async("worker1", "script.model.plus", args=(x, 2.0)).wait(), x + 4)
        assert torch.equal(rpc.remote("worker1", "script." + scale.qualified_name, args=(x,)).to_here(), x * 2)
        with pytest.raises(Error, match=r"no script function named 'model\.none'"):
            rpc.rpc_sync("worker1", "script.model.none")
        with pytest.raises(Error, match="lacks a value for its argument 'x'"):
            rpc.rpc_sync("worker1", "script.model.forward")
        with pytest.raises(TypeError, match="only a script module"):
            rpc.add_script_module("plain", Model(3))

    group(body)
