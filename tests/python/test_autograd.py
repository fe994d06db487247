"""Distributed autograd over three real processes, against the same program in one."""

import threading

import pytest
import torch
from conftest import options

from gradwire import _C, Error, RemoteError, _default, autograd, futures, rpc

LIMITS = {torch.float32: 1e-6, torch.float64: 1e-12}


def new_parameters(dtype):
    """Forked workers begin with equal copies; each uses only its own."""
    generator = torch.Generator().manual_seed(11)
    return {
        name: (torch.rand(6, dtype=dtype, generator=generator) * 0.5).requires_grad_()
        for name in ("x", "zero", "one", "two", "idle")
    }


PARAMETERS = {dtype: new_parameters(dtype) for dtype in LIMITS}
OWNERS = {"x": "worker0", "zero": "worker0", "one": "worker1", "two": "worker2", "idle": "worker2"}

_mode = threading.local()


def call(to, function, *args):
    """The remote call, or in the program that is compared with, a plain one."""
    if getattr(_mode, "local", False):
        return function(*args)
    return rpc.rpc_sync(to, function, args=args)


def call_async(to, function, *args):
    if getattr(_mode, "local", False):
        future = torch.futures.Future()
        future.set_result(function(*args))
        return future
    return rpc.rpc_async(to, function, args=args)


def on_zero(h):
    zero = PARAMETERS[h.dtype]["zero"]
    return h * zero, h + zero


def on_two(h, shared):
    two = PARAMETERS[h.dtype]["two"]
    back = call("worker0", on_zero, torch.sin(h * two))
    return back[0] + shared, back[1] + two


def on_one(h):
    one = PARAMETERS[h.dtype]["one"]
    g = torch.tanh(h * one)
    deep = call("worker2", on_two, g, h)
    call("worker2", on_two, g, g)  # unused
    return {"sum": deep[0] + g, "rest": [deep[1] * one, h]}


def on_idle(h):
    return h * PARAMETERS[h.dtype]["idle"]


def loss_of(x):
    h = x * 2
    a = call("worker1", on_one, h)
    fan = [call_async(to, function, h, h) for to, function in (("worker2", on_two), ("worker2", on_two))]
    c = call("worker2", on_two, a["sum"], h)  # nested, and where two branches meet
    call("worker2", on_idle, h)  # unused
    b, again = (future.wait() for future in fan)
    # b[1] is unused, h is used by several calls and here.
    return (a["sum"] * b[0] + c[1] * h + a["rest"][0] + again[0] * a["rest"][1]).sum()


def wanted(dtype):
    """The gradients of one process."""
    _mode.local = True
    try:
        names = [name for name in PARAMETERS[dtype] if name != "idle"]
        return dict(
            zip(
                names,
                torch.autograd.grad(loss_of(PARAMETERS[dtype]["x"]), [PARAMETERS[dtype][name] for name in names]),
                strict=True,
            )
        )
    finally:
        _mode.local = False


def gradient_of(context_id, dtype, name):
    return autograd.get_gradients(context_id).get(PARAMETERS[dtype][name])


def gradient(context_id, dtype, name):
    return rpc.rpc_sync(OWNERS[name], gradient_of, args=(context_id, dtype, name))


def worst(context_id, dtype, passes=1):
    """The largest difference from `passes` times the gradients of one process."""
    differences = []
    for name, right in wanted(dtype).items():
        there = gradient(context_id, dtype, name)
        assert there is not None, name
        differences.append((there - passes * right).abs().max().item())
    return max(differences)


# A1, A2
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_three_workers_equal_one_process(group, dtype):
    def body():
        assert min(right.abs().max() for right in wanted(dtype).values()) > 0.1
        with autograd.context() as context_id:
            autograd.backward(context_id, [loss_of(PARAMETERS[dtype]["x"])])
            assert worst(context_id, dtype) <= LIMITS[dtype]
            assert gradient(context_id, dtype, "idle") is None
            assert set(autograd.get_gradients(context_id)) == {PARAMETERS[dtype][name] for name in ("x", "zero")}
        assert all(parameter.grad is None for parameter in PARAMETERS[dtype].values())

    group(body, world_size=3)


# A1: roots on another worker than that which made the context, and several of them.
def test_any_worker_may_start_the_pass(group):
    def body():
        dtype = torch.float64
        with autograd.context() as context_id:
            assert rpc.rpc_sync("worker1", backward_there, args=(context_id, PARAMETERS[dtype]["x"]))
            x = gradient(context_id, dtype, "x")
            _mode.local = True
            parts = on_one(PARAMETERS[dtype]["x"])
            right = torch.autograd.grad([parts["sum"].sum(), parts["rest"][0].sum()], PARAMETERS[dtype]["x"])[0]
            _mode.local = False
            assert (x - right).abs().max() <= 1e-12

    group(body, world_size=3)


def backward_there(context_id, x):
    parts = on_one(x)
    autograd.backward(context_id, [parts["sum"].sum(), parts["rest"][0].sum()])
    return True


# A1: values behind references.
def test_gradients_through_references(group):
    def body():
        x = torch.rand(3, dtype=torch.float64, requires_grad=True)
        with autograd.context() as context_id:
            doubled = rpc.remote("worker1", torch.mul, args=(x, 2))
            summed = rpc.rpc_sync("worker2", add_reference, args=(doubled, x))
            autograd.backward(context_id, [(summed * doubled.to_here()).sum()])
            there = autograd.get_gradients(context_id)[x]
        y = x.detach().requires_grad_()
        ((2 * y + y) * (2 * y)).sum().backward()
        assert (there - y.grad).abs().max() <= 1e-12

    group(body, world_size=3)


def add_reference(rref, x):
    return rref.to_here() + x


# A4
def test_retained_passes_add_up(group):
    def body():
        dtype = torch.float64
        with autograd.context() as context_id:
            loss = loss_of(PARAMETERS[dtype]["x"])
            for passes in range(1, 4):
                autograd.backward(context_id, [loss], retain_graph=passes < 3)
                assert worst(context_id, dtype, passes) <= 1e-11
            with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
                autograd.backward(context_id, [loss])
            assert worst(context_id, dtype, 3) <= 1e-11

    group(body, world_size=3)


# A5
def test_contexts_of_several_threads_and_workers_do_not_mix(group):
    def body():
        futures = [rpc.rpc_async(f"worker{rank}", many_passes) for rank in (1, 2)]
        faults = []
        threads = [threading.Thread(target=lambda: faults.append(many_passes())) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        worsts = faults + [future.wait() for future in futures]
        assert len(worsts) == 4
        assert max(worsts) <= 1e-12

    group(body, world_size=3)


def many_passes():
    dtype = torch.float64
    differences = []
    for _ in range(5):
        x = PARAMETERS[dtype]["x"].detach().requires_grad_()
        with autograd.context() as context_id:
            autograd.backward(context_id, [loss_of(x)])
            differences.append((autograd.get_gradients(context_id)[x] - wanted(dtype)["x"]).abs().max().item())
            differences.append((gradient(context_id, dtype, "one") - wanted(dtype)["one"]).abs().max().item())
    return max(differences)


def test_contexts_inside_each_other(group):
    def body():
        x = torch.ones(2, requires_grad=True)
        with autograd.context() as outer:
            loss = rpc.rpc_sync("worker1", torch.mul, args=(x, 3)).sum()
            with autograd.context() as inner:
                assert inner != outer
                autograd.backward(inner, [rpc.rpc_sync("worker1", torch.mul, args=(x, 5)).sum()])
                assert autograd.get_gradients(inner)[x].tolist() == [5, 5]
            autograd.backward(outer, [loss])
            assert autograd.get_gradients(outer)[x].tolist() == [3, 3]

    group(body)


class Fail(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, error):
        ctx.error = error
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ctx.error


class CodedError(ValueError):
    def __init__(self, code):
        super().__init__(code)
        self.code = code


class TwoArgumentError(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")


ERRORS = {
    "value": lambda: ValueError("no good: ü"),
    "coded": lambda: CodedError(7),
    "runtime": lambda: RuntimeError("ran badly"),
    "unpicklable": lambda: TwoArgumentError(7, "text"),
}


def fail_in_node(x, kind):
    return Fail.apply(x, ERRORS[kind]())


def fail_in_hook(x, kind):
    y = x * 2

    def hook(gradient):
        raise ERRORS[kind]()

    y.register_hook(hook)
    return y


def fail_in_call(x, kind):
    """The hook calls a function that fails elsewhere."""
    y = x * 2
    y.register_hook(lambda gradient: rpc.rpc_sync("worker0", raise_error, args=(kind,)))
    return y


def raise_error(kind):
    raise ERRORS[kind]()


# A3: errors of nodes and hooks written in Python keep text and type, wherever they run.
@pytest.mark.parametrize("fail", [fail_in_node, fail_in_hook, fail_in_call], ids=lambda fail: fail.__name__)
def test_errors_in_python(group, fail):
    def body():
        for rank in range(3):
            where = f"^Error on Node {rank}: "
            x = torch.ones(2, requires_grad=True)
            with autograd.context() as context_id:

                def loss(kind, rank=rank, x=x):
                    if rank == 0:
                        return fail(rpc.rpc_sync("worker1", torch.mul, args=(x, 1)), kind).sum()
                    return rpc.rpc_sync(f"worker{rank}", fail, args=(x, kind)).sum()

                with pytest.raises(ValueError, match=where) as caught:
                    autograd.backward(context_id, [loss("value")])
                assert str(caught.value) == f"Error on Node {rank}: no good: ü"
                assert isinstance(caught.value, RuntimeError)
                assert f"raised on worker 'worker{rank}'" in caught.value.__notes__[-1]
                with pytest.raises(CodedError, match=where + "7") as caught:
                    autograd.backward(context_id, [loss("coded")])
                assert caught.value.code == 7
                with pytest.raises(RuntimeError, match=where + "ran badly"):
                    autograd.backward(context_id, [loss("runtime")])
                with pytest.raises(RemoteError, match=rf"Error on Node {rank}: .*7: text") as caught:
                    autograd.backward(context_id, [loss("unpicklable")])
                assert "TwoArgumentError: " in str(caught.value)
                assert x not in autograd.get_gradients(context_id)
                autograd.backward(context_id, [rpc.rpc_sync("worker2", torch.mul, args=(x, 3)).sum()])
                assert autograd.get_gradients(context_id)[x].tolist() == [3, 3]

    group(body, world_size=3)


def test_hooks_may_call(group):
    def body():
        x = torch.ones(2, requires_grad=True)
        with autograd.context() as context_id:
            loss = rpc.rpc_sync("worker1", with_calling_hook, args=(x,)).sum()
            autograd.backward(context_id, [loss])
            assert autograd.get_gradients(context_id)[x].tolist() == [6, 6]

    group(body, world_size=3)


def with_calling_hook(x):
    y = x * 2
    y.register_hook(lambda gradient: rpc.rpc_sync("worker2", torch.mul, args=(gradient, 3)))
    return y


def test_bad_uses(alone):
    x = torch.ones(2, requires_grad=True)
    loss = rpc.rpc_sync("me", torch.mul, args=(x, 2)).sum()
    for context_id in (-1, 0, 77, 2**60):
        for use in (lambda c: autograd.backward(c, [loss]), autograd.get_gradients):
            with pytest.raises(Error, match=rf"(?i)context.*{context_id}") as caught:
                use(context_id)
            assert caught.value.code == "Invalid"
    with autograd.context() as context_id:
        for roots, text in (
            ([], "at least one root"),
            ([torch.ones(())], "requires_grad not set on root 0"),
            ([loss, torch.ones(())], "requires_grad not set on root 1"),
            ([x], "not a scalar.*: it has 2 elements"),
            ([torch.ones((), requires_grad=True)], "is a leaf"),
        ):
            with pytest.raises(Error, match=text) as caught:
                autograd.backward(context_id, roots)
            assert caught.value.code == "Invalid"
        for roots in (None, 3, [None], ["loss"]):
            with pytest.raises(TypeError, match="incompatible function arguments"):
                autograd.backward(context_id, roots)
        assert autograd.get_gradients(context_id) == {}
    with pytest.raises(Error, match=f"(?i)context.*{context_id}"):
        autograd.get_gradients(context_id)
    with pytest.raises(Error, match=f"(?i)context.*{context_id}"):
        autograd.backward(context_id, [loss])


# A call made outside every context has no history that a pass could follow.
def test_a_result_of_a_call_without_context(alone):
    x = torch.ones(2, requires_grad=True)
    there = rpc.rpc_sync("me", torch.mul, args=(x, 2))
    assert there.grad_fn is None
    with autograd.context() as context_id, pytest.raises(Error, match="requires_grad not set"):
        autograd.backward(context_id, [there.detach().sum()])


def test_without_a_worker(tmp_path):
    for use in (
        lambda: autograd.context().__enter__(),
        lambda: autograd.backward(1, [torch.ones((), requires_grad=True) * 2]),
        lambda: autograd.get_gradients(1),
    ):
        with pytest.raises(Error, match=r"^RPC has not been initialized"):
            use()
    rpc.init_rpc("me", rank=0, world_size=1, rpc_backend_options=options(tmp_path / "store"))
    context = autograd.context()
    context_id = context.__enter__()
    rpc.shutdown()
    context.__exit__(None, None, None)  # a context that outlives its worker ends without an error
    with pytest.raises(Error, match=r"^RPC has not been initialized"):
        autograd.get_gradients(context_id)


# A3: the loss of a worker ends the pass with its name.
def test_a_lost_worker(scripts, tmp_path):
    text = """
    import os, sys, threading
    import torch
    import gradwire
    from gradwire import autograd, rpc
    rank, store = int(sys.argv[1]), sys.argv[2]

    def double(x):
        y = x * 2
        y.register_hook(lambda gradient: os._exit(0))
        return y

    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
        init_method="file://" + store))
    if rank == 1:
        threading.Event().wait()
    with autograd.context() as context_id:
        x = torch.ones(2, requires_grad=True)
        loss = rpc.rpc_sync("worker1", double, args=(x,)).sum()
        for _ in range(2):
            try:
                autograd.backward(context_id, [loss], retain_graph=True)
            except gradwire.Error as error:
                print(error.code, "worker1" in str(error))
    rpc.shutdown(graceful=False)
    """
    processes = [scripts.start(text, rank, tmp_path / "store") for rank in range(2)]
    out, err = processes[0].communicate(timeout=60)
    assert processes[0].returncode == 0, err
    assert out == "Disconnected True\n" * 2


def twice(x):
    return x * 2


# A1: what a callback calls is a part of the program that added it.
@pytest.mark.parametrize("nested", [False, True])
def test_a1_callbacks_run_in_the_context_in_which_they_were_added(group, nested):
    def body():
        x = torch.ones(2, requires_grad=True)
        with autograd.context() as context_id:
            if nested:  # added by a callback
                first = rpc.rpc_async("worker1", twice, args=(x,))
                second = first.then(lambda f: rpc.rpc_async("worker1", twice, args=(f.value(),)).then(twice_of))
                y = second.wait().wait()
            else:
                y = rpc.rpc_async("worker1", twice, args=(x,)).then(twice_of).then(twice_of).wait()
            autograd.backward(context_id, [y.sum()])
            assert autograd.get_gradients(context_id)[x].tolist() == [8, 8]

    group(body)


def twice_of(future):
    return rpc.rpc_sync("worker1", twice, args=(future.value(),))


def current():
    return _C.current_context(_default.worker)


def test_a7_callbacks_run_without_a_context_that_has_been_released(alone):
    source, seen = futures.Future(), []
    with autograd.context():
        following = source.then(lambda _: current())
        source.add_done_callback(lambda _: seen.append(current()))
    with autograd.context() as other:
        source.set_result(1)
        assert following.wait() == -1
        assert seen == [-1]
        assert current() == other


def test_a5_a_callback_leaves_the_context_of_who_completes_its_future(alone):
    source = futures.Future()
    with autograd.context() as outer:
        following = source.then(lambda _: current())
        with autograd.context() as inner:
            source.set_result(1)
            assert following.wait() == outer != inner
            assert current() == inner
        assert current() == outer
