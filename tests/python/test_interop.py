"""A Python worker and a C++ worker call each other by registered name."""

import subprocess
from pathlib import Path

import pytest
import torch
from conftest import options

import gradwire
from gradwire import autograd, optim, rpc

PEER = Path(gradwire.__path__[0]).parent.parent / "tests" / "interop_peer"


def twice(tensor):
    return tensor * 2


def broken(tensor):
    raise KeyError("no such row")


def unsendable(tensor):
    return object()


@pytest.fixture
def peer(tmp_path):
    store = tmp_path / "store"
    process = subprocess.Popen([PEER, f"file://{store}"])
    try:
        for function in (twice, broken, unsendable):
            rpc.register_function(f"py.{function.__name__}", function)
        rpc.init_rpc("python", rank=0, world_size=2, rpc_backend_options=options(store))
        yield
        rpc.shutdown()
        assert process.wait(30) == 0
    finally:
        process.kill()
        for function in (twice, broken, unsendable):
            rpc.unregister_function(f"py.{function.__name__}")


def test_python_calls_cpp(peer):
    assert rpc.rpc_sync("cpp", "scale", args=(torch.ones(2), 3)).tolist() == [3, 3]
    assert rpc.rpc_sync("cpp", "count", args=({"a": [1, 2], "b": [4]},)) == {"a": 3, "b": 4}
    with pytest.raises(gradwire.Error, match=r"'cpp'.*nothing|nothing.*'cpp'"):
        rpc.rpc_sync("cpp", "nothing")


def test_a_value_that_cannot_be_read_is_an_error_of_its_call(peer):
    for wait in (lambda: rpc.rpc_sync("cpp", "bogus_device"), lambda: rpc.rpc_async("cpp", "bogus_device").wait()):
        with pytest.raises(RuntimeError, match="bogus"):
            wait()


class Meter:
    def read(self):
        return 5


def test_calls_of_python_say_that_cpp_runs_none(peer):
    value = rpc.rpc_sync("cpp", "keep", args=(torch.ones(2, requires_grad=True),))
    for call, name in [
        (lambda: rpc.rpc_sync("cpp", twice, args=(torch.ones(1),)), "twice"),
        (lambda: rpc.rpc_async("cpp", Meter().read).wait(), "Meter.read"),
        (lambda: rpc.rpc_sync("cpp", torch.zeros, args=(2,)), "torch.zeros"),
        (lambda: value.rpc_sync().backwards(), "backwards"),
        (lambda: optim.DistributedOptimizer(torch.optim.SGD, [value], lr=0.1), "DistributedOptimizer"),
    ]:
        with pytest.raises(gradwire.Error, match=rf"runs no Python.*'{name}'") as caught:
            call()
        assert (caught.value.code, caught.value.worker) == ("UnknownFunction", "cpp")


def test_cpp_calls_python(peer):
    assert rpc.rpc_sync("cpp", "ask_python", args=("python", torch.full((2,), 4.0))).tolist() == [9, 9]


def test_errors_of_python_reach_cpp(peer):
    failed = rpc.rpc_sync("cpp", "ask_in_vain", args=("python", "py.broken"))
    assert "KeyError" in failed
    assert "no such row" in failed
    assert "py.none" in rpc.rpc_sync("cpp", "ask_in_vain", args=("python", "py.none"))
    failed = rpc.rpc_sync("cpp", "ask_in_vain", args=("python", "py.unsendable"))
    assert "object" in failed  # the type that C++ cannot take


def test_references_cross(peer):
    kept = rpc.rpc_sync("cpp", "keep", args=(torch.arange(3.0),))
    assert kept.owner_name() == "cpp"
    assert kept.to_here().tolist() == [0, 1, 2]
    made, value = rpc.rpc_sync("cpp", "remote_python", args=("python", torch.ones(1)))
    assert made.is_owner()
    assert made.local_value().tolist() == value.tolist() == [2]


def test_gradients_cross(peer):
    weight = torch.full((2,), 5.0, requires_grad=True)
    with autograd.context() as context:
        there_and_back = rpc.rpc_sync("cpp", "ask_python", args=("python", weight))
        autograd.backward(context, [rpc.rpc_sync("cpp", "scale", args=(there_and_back, 3)).sum()])
        assert autograd.get_gradients(context)[weight].tolist() == [6, 6]


def test_names_are_taken_once():
    rpc.register_function("py.once", twice)
    try:
        with pytest.raises(gradwire.Error, match=r"py\.once"):
            rpc.register_function("py.once", twice)
    finally:
        rpc.unregister_function("py.once")
    with pytest.raises(TypeError, match="callable"):
        rpc.register_function("py.text", "text")
