"""Calls: what can be called, how arguments and results travel, and what goes wrong where."""

import collections
import functools
import io
import sys
import threading

import pytest
import torch

from gradwire import Error, RemoteError, rpc

ONE_ARGUMENT = [
    "abs",
    "neg",
    "exp",
    "log",
    "sqrt",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "relu",
    "t",
    "trace",
    "det",
    "floor",
]
TWO_ARGUMENTS = ["add", "sub", "mul", "div", "pow", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "fmod"]

Point = collections.namedtuple("Point", "x y")


def add(x, y=1):
    return x + y


def same(value):
    return value


def nothing():
    pass


def who():
    return rpc.get_worker_info().name


class Counter:
    unit = "calls"

    def __init__(self, start=0):
        self.count = start

    def increase(self, by=1):
        self.count += by
        return self.count

    @staticmethod
    def double(x):
        return 2 * x

    @classmethod
    def name(cls):
        return cls.unit

    def __call__(self, x):
        return self.count + x


class TwoArgumentError(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")


class KeptError(ValueError):
    def __init__(self, code):
        super().__init__(code)
        self.code = code


def fail(cls, *args):
    raise cls(*args)


def fail_with_exit():
    sys.exit(3)


def chain(depth):
    return 0 if depth == 0 else 1 + rpc.rpc_sync(f"worker{depth % 2}", chain, args=(depth - 1,))


def test_functions_of_python(group):
    def body():
        assert rpc.rpc_sync("worker1", add, args=(1, 2)) == 3
        assert rpc.rpc_sync("worker1", add, args=[1], kwargs={"y": 5}) == 6
        assert rpc.rpc_sync("worker1", add, kwargs={"x": "a", "y": "b"}) == "ab"
        assert rpc.rpc_sync("worker1", nothing) is None
        assert rpc.rpc_sync("worker1", min, args=(3, 2)) == 2
        assert rpc.rpc_sync("worker1", who) == "worker1"
        assert rpc.rpc_sync(1, who) == "worker1"
        assert rpc.rpc_sync(rpc.get_worker_info("worker1"), who) == "worker1"
        assert rpc.rpc_sync("worker0", who) == "worker0"
        assert rpc.rpc_sync("worker1", Counter.double, args=(4,)) == 8
        assert rpc.rpc_sync("worker1", Counter.name) == "calls"
        assert rpc.rpc_sync("worker1", Counter(5).increase, args=(2,)) == 7
        assert rpc.rpc_sync("worker1", Counter(5), args=(2,)) == 7
        assert rpc.rpc_sync("worker1", Counter, args=(9,)).count == 9
        assert rpc.rpc_sync("worker1", functools.partial(add, 1), args=(2,)) == 3
        assert rpc.rpc_sync("worker1", same, args=(Point(1, [2]),)) == Point(1, [2])

    group(body)


def test_functions_of_torch(group):
    def body():
        x = torch.arange(4.0).reshape(2, 2)
        assert torch.equal(rpc.rpc_sync("worker1", torch.add, args=(x, x)), x + x)
        assert torch.equal(rpc.rpc_sync("worker1", torch.add, args=(x, 1)), x + 1)
        assert torch.equal(rpc.rpc_sync("worker1", torch.add, args=(x, x), kwargs={"alpha": 2}), 3 * x)
        assert torch.equal(rpc.rpc_sync("worker1", torch.mm, args=(x, x)), x @ x)
        assert torch.equal(rpc.rpc_sync("worker1", torch.cat, args=([x, x], 1)), torch.cat([x, x], 1))
        assert torch.equal(
            rpc.rpc_sync("worker1", torch.ones, args=([2],), kwargs={"dtype": torch.int64}), torch.ones(2)
        )
        assert torch.equal(rpc.rpc_sync("worker1", torch.sum, args=(x, 1)), x.sum(1))
        values, indices = rpc.rpc_sync("worker1", torch.max, args=(x, 0))
        assert values.tolist() == [2, 3]
        assert indices.tolist() == [1, 1]
        assert isinstance(rpc.rpc_sync("worker1", torch.split, args=(x, 1)), tuple)
        assert torch.equal(rpc.rpc_sync("worker1", torch.nn.functional.relu, args=(-x,)), torch.relu(-x))
        assert torch.equal(rpc.rpc_sync("worker1", torch.Tensor.add, args=(x, x)), x + x)
        assert torch.equal(rpc.rpc_sync("worker1", torch.nonzero, args=(x,)), torch.nonzero(x))
        nested = rpc.rpc_sync("worker1", torch.stack, args=([x, x],))
        assert nested.shape == (2, 2, 2)
        # Lists of other things are other overloads.
        assert rpc.rpc_sync("worker1", torch.full, args=([2], 1.5)).tolist() == [1.5, 1.5]
        assert rpc.rpc_sync("worker1", torch.full, args=([2], 1)).dtype == torch.int64

    group(body)


def test_many_operators_are_called_as_torch_calls_them(group):
    def body():
        x = torch.rand(3, 3) + 0.1
        for name in ONE_ARGUMENT:
            function = getattr(torch, name)
            torch.testing.assert_close(rpc.rpc_sync("worker1", function, args=(x,)), function(x))
        for name in TWO_ARGUMENTS:
            function = getattr(torch, name)
            for other in (x + 1, 2, 0.5) if name not in ("maximum", "minimum") else (x + 1,):
                torch.testing.assert_close(rpc.rpc_sync("worker1", function, args=(x, other)), function(x, other))

    group(body)


def test_tensors_keep_layout_and_are_private(group):
    def body():
        base = torch.arange(12.0).reshape(3, 4)
        for tensor in (base.t(), base[:, 1:3], torch.eye(3).to_sparse(), torch.tensor([1 + 2j]).conj()):
            there = rpc.rpc_sync("worker1", same, args=(tensor,))
            assert there.layout == tensor.layout
            assert torch.equal(there.to_dense() if there.is_sparse else there, tensor.to_dense())
            if not tensor.is_sparse:
                assert there.stride() == tensor.stride()
        rpc.rpc_sync("worker1", torch.Tensor.zero_, args=(base,))
        rpc.rpc_sync("worker0", torch.Tensor.zero_, args=(base,))
        assert base.sum() == 66

    group(body)


def test_large_tensors(group):
    def body():
        large = torch.arange(3_000_000)
        assert torch.equal(rpc.rpc_sync("worker1", same, args=({"x": large},))["x"], large)
        assert torch.equal(rpc.rpc_sync("worker1", torch.add, args=(large, 1)), large + 1)

    group(body)


def test_errors_of_functions(group):
    def body():
        with pytest.raises(ValueError, match="one\ntwo") as caught:
            rpc.rpc_sync("worker1", fail, args=(ValueError, "one\ntwo"))
        assert "\\" not in str(caught.value)
        assert "in fail" in caught.value.__notes__[0]
        assert "worker1" in caught.value.__notes__[0]
        with pytest.raises(KeptError) as caught:
            rpc.rpc_sync("worker1", fail, args=(KeptError, 7))
        assert caught.value.code == 7
        with pytest.raises(
            RemoteError, match=r"Original exception on remote side was .*TwoArgumentError: 7: text"
        ) as caught:
            rpc.rpc_sync("worker1", fail, args=(TwoArgumentError, 7, "text"))
        assert caught.value.worker == "worker1"
        assert caught.value.type_name.endswith("TwoArgumentError")
        assert "in fail" in caught.value.remote_traceback
        with pytest.raises(RemoteError, match="SystemExit"):
            rpc.rpc_sync("worker1", fail_with_exit)
        with pytest.raises(ZeroDivisionError):
            rpc.rpc_sync("worker0", divmod, args=(1, 0))
        printed = rpc.rpc_sync("worker1", captured_failure_of_worker1)
        assert printed.startswith("gradwire: 'fail', called by worker 'worker1', has raised:\nTraceback ")
        assert printed.count("ValueError: seen by the callee") == 1

    group(body)


def captured_failure_of_worker1():
    stream, sys.stderr = sys.stderr, io.StringIO()
    try:
        with pytest.raises(ValueError, match="seen by the callee"):
            rpc.rpc_sync("worker1", fail, args=(ValueError, "seen by the callee"))
        return sys.stderr.getvalue()
    finally:
        sys.stderr = stream


def test_errors_of_operators(group):
    def body():
        with pytest.raises(RuntimeError, match="size of tensor") as caught:
            rpc.rpc_sync("worker1", torch.add, args=(torch.ones(2), torch.ones(3)))
        assert isinstance(caught.value, RemoteError)
        assert "frame #" not in str(caught.value)
        with pytest.raises(RuntimeError, match="failed to match any schema"):
            rpc.rpc_async("worker1", torch.add, args=())
        with pytest.raises(RuntimeError, match="expected at most"):
            rpc.rpc_sync("worker1", torch.mm, args=(torch.ones(2), torch.ones(2), 1, 2, 3))

    group(body)


def _factories():
    for function, args, kwargs in [
        (torch.zeros, (2,), {}),
        (torch.ones, (2, 3), {}),
        (torch.ones, (2,), {"dtype": torch.int8}),
        (torch.empty, (4, 1), {}),
        (torch.tensor, ([1.5, 2.5],), {}),
        (torch.tensor, ([[1], [2]],), {"dtype": torch.float64}),
    ]:
        there = rpc.rpc_sync("worker1", function, args, kwargs)
        here = function(*args, **kwargs)
        assert (there.shape, there.dtype) == (here.shape, here.dtype), function
    assert rpc.remote("worker1", torch.zeros, args=(2,)).to_here().tolist() == [0, 0]
    assert rpc.rpc_async("worker1", torch.rand, args=(2, 3)).wait().shape == (2, 3)
    assert rpc.rpc_sync("worker1", torch.randn, args=(2, 3)).shape == (2, 3)
    with pytest.raises(TypeError, match=r"zeros\(\)"):
        rpc.rpc_sync("worker1", torch.zeros, args=("two",))
    with pytest.raises(RuntimeError, match="failed to match any schema") as caught:
        rpc.rpc_sync("worker1", torch.zeros)
    assert "'torch.zeros'" in caught.value.__notes__[0]


def test_makers_of_tensors_take_what_they_take_here(group):
    group(_factories)


def test_results_that_cannot_travel(group):
    def body():
        with pytest.raises(TypeError, match="cannot pickle"):
            rpc.rpc_sync("worker1", make_lock)
        with pytest.raises(RuntimeError, match=r"Can not pickle torch\.futures"):
            rpc.rpc_sync("worker1", make_future)

    group(body)


def make_lock():
    return threading.Lock()


def make_future():
    return rpc.rpc_async("worker0", add, args=(1, 2))


def test_a_bad_call_fails_where_it_is_made(group):
    def body():
        for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            with pytest.raises(Error, match=r"cannot send the function .*<lambda>"):
                call("worker1", lambda: 1)
            with pytest.raises(Error, match=r"cannot send the function .*<locals>.inner"):
                call("worker1", make_inner())
            with pytest.raises(TypeError, match="is not callable"):
                call("worker1", 5)
            with pytest.raises(TypeError, match="args must be a tuple"):
                call("worker1", add, args=5)
            with pytest.raises(TypeError, match="kwargs must be a dict"):
                call("worker1", add, kwargs=[1])
            with pytest.raises(TypeError, match="cannot pickle"):
                call("worker1", add, args=(threading.Lock(),))
            with pytest.raises(RuntimeError, match=r"Can not pickle torch\.futures"):
                call("worker1", add, args=(torch.futures.Future(),))
            with pytest.raises(Error, match="no worker named 'nobody'") as caught:
                call("nobody", add)
            assert caught.value.code == "UnknownWorker"
            for rank in (2, -1, 2**70):
                with pytest.raises(Error, match="no worker of rank"):
                    call(rank, add)
            for bad in (0.5, None, True):
                with pytest.raises(ValueError, match="a worker is named by"):
                    call(bad, add)
            with pytest.raises(Error, match="meta"):
                call("worker1", add, args=(torch.ones(2).to_sparse().to("meta"),))
        assert rpc.rpc_sync("worker1", add, args=(1, 1)) == 2

    group(body)


def make_inner():
    def inner():
        pass

    return inner


def test_a_function_missing_on_the_callee(group):
    def body():
        rpc.rpc_sync("worker1", forget_nothing)
        with pytest.raises(Error, match="RPC pickler does not serialize") as caught:
            rpc.rpc_sync("worker1", nothing)
        assert caught.value.code == "UnknownFunction"
        assert "test_calls.nothing" in str(caught.value)

    group(body)


def forget_nothing():
    """Worker1 was forked: what it forgets is still there elsewhere."""
    del globals()["nothing"]


def test_an_unknown_registered_function(group):
    def body():
        with pytest.raises(Error, match=r"no function named 'no\.such'") as caught:
            rpc.rpc_sync("worker1", "no.such", args=(1,))
        assert caught.value.code == "UnknownFunction"
        with pytest.raises(TypeError, match="takes no keyword arguments"):
            rpc.rpc_sync("worker1", "no.such", kwargs={"x": 1})
        with pytest.raises(TypeError, match="takes plain values"):
            rpc.rpc_sync("worker1", "no.such", args=({1, 2},))

    group(body)


def test_timeouts(group):
    def body():
        for timeout in (0.05, 0.0001):
            with pytest.raises(Error, match="RPC ran for more than") as caught:
                rpc.rpc_sync("worker1", block, timeout=timeout)
            assert caught.value.code == "TimedOut"
        future = rpc.rpc_async("worker1", block, timeout=0.05)
        with pytest.raises(Error, match="RPC ran for more than"):
            future.wait()
        assert rpc.get_rpc_timeout() == 60
        rpc._set_rpc_timeout(0.05)
        with pytest.raises(Error, match="RPC ran for more than"):
            rpc.rpc_sync("worker1", block)
        rpc._set_rpc_timeout(60)
        with pytest.raises(ValueError, match="timeout must be a number"):
            rpc.rpc_sync("worker1", block, timeout=float("nan"))
        rpc.rpc_sync("worker1", unblock)
        assert rpc.rpc_sync("worker1", add, args=(1,), timeout=0) == 2

    group(body)


_unblocked = threading.Event()


def block():
    assert _unblocked.wait(50)


def unblock():
    _unblocked.set()


# C3: a handler that waits for a call does not take a thread from others.
def test_nested_calls_with_one_thread(group):
    def body():
        assert rpc.rpc_sync("worker1", chain, args=(41,)) == 41

    group(body, num_worker_threads=1)


def test_calls_from_many_threads(group):
    def body():
        faults = []

        def call(index):
            for i in range(50):
                if rpc.rpc_sync(f"worker{1 + i % 2}", add, args=(index, i)) != index + i:
                    faults.append((index, i))

        threads = [threading.Thread(target=call, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults

    group(body, world_size=3)


# Builtins look at the frame that calls them.
def test_builtins_that_need_a_frame(alone):
    assert rpc.rpc_sync("me", eval, args=("1 + 1",)) == 2
    assert rpc.rpc_sync("me", exec, args=("x = 1",)) is None
    assert rpc.rpc_sync("me", max, args=(3, 5), kwargs={"key": abs}) == 5
    with pytest.raises(NameError):
        rpc.rpc_sync("me", eval, args=("nothing",))


def test_a_group_of_one(alone):
    assert rpc.rpc_sync("me", torch.add, args=(torch.ones(2), 1)).tolist() == [2, 2]
    assert rpc.rpc_async(0, add, args=(1, 2)).wait() == 3
    value = [1]
    there = rpc.rpc_sync("me", same, args=(value,))
    assert there == [1]
    assert there is not value
