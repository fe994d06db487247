"""Functions that answer later: async_execution and coroutines (C6, C3)."""

import asyncio
import gc
import threading
import weakref

import pytest
import torch

from gradwire import Error, RemoteError, autograd, functions, futures, rpc


def add(x, y):
    return x + y


@functions.async_execution
def later_add(to, x, y):
    return rpc.rpc_async(to, torch.add, args=(x, y))


@functions.async_execution
def chained(to, x, count):
    future = rpc.rpc_async(to, add, args=(x, 0))
    for _ in range(count):
        future = future.then(lambda done: done.wait() + 1)
    return future


@functions.async_execution
def of_torch(to, x, y):
    future = torch.futures.Future()
    rpc.rpc_async(to, add, args=(x, y)).then(lambda done: future.set_result(done.wait() + 1))
    return future


@functions.async_execution
def of_torchs_then(x):
    future = torch.futures.Future()
    following = future.then(lambda done: done.wait() + 1)
    future.set_result(x)
    return following


@functions.async_execution
def nested(to, x, y):
    return rpc.rpc_async(to, later_add, args=(to, x, y)).then(lambda done: done.wait() + 1)


@functions.async_execution
def already_there(x):
    future = futures.Future()
    future.set_result(x)
    return future


@functions.async_execution
def fanned_out(to, count):
    calls = [rpc.rpc_async(to, add, args=(i, 1)) for i in range(count)]
    return futures.collect_all(calls).then(lambda done: sum(call.wait() for call in done.wait()))


@functions.async_execution
def returns_a_tensor():
    return torch.zeros(2)


@functions.async_execution
def raises():
    raise KeyError("before the future")


@functions.async_execution
def fails_later(to):
    return rpc.rpc_async(to, add, args=(1, "x"))


@functions.async_execution
def fails_by_hand(kind):
    future = kind()
    future.set_exception(LookupError("by hand"))
    return future


@functions.async_execution
def fails_in_a_callback(to):
    def callback(done):
        raise LookupError("in a callback")

    return rpc.rpc_async(to, add, args=(1, 2)).then(callback)


@functions.async_execution
def forgotten():
    return torch.futures.Future()


class Shelf:
    def __init__(self, base):
        self.base = base

    @functions.async_execution
    def bound(self, to, x):
        return rpc.rpc_async(to, add, args=(x, self.base))

    @classmethod
    @functions.async_execution
    def of_class(cls, to, x):
        return rpc.rpc_async(to, add, args=(x, 1)).then(lambda done: (cls.__name__, done.wait()))

    @staticmethod
    @functions.async_execution
    def static(to, x):
        return rpc.rpc_async(to, add, args=(x, 2))

    async def coroutine(self, to, x):
        return await rpc.rpc_async(to, add, args=(x, self.base))

    def plain(self):
        return self.base


CASES = [
    (later_add, ("worker0", torch.ones(2), 2.0), torch.full((2,), 3.0)),
    (chained, ("worker0", torch.ones(2), 20), torch.full((2,), 21.0)),
    (of_torch, ("worker0", 1, 2), 4),
    (of_torchs_then, (1,), 2),
    (nested, ("worker0", torch.ones(1), 1), torch.full((1,), 3.0)),
    (already_there, ([1, {"a": None}],), [1, {"a": None}]),
    (fanned_out, ("worker0", 20), 210),
    (Shelf.static, ("worker0", 1), 3),
    (Shelf.of_class, ("worker0", 1), ("Shelf", 2)),
    (Shelf(10).bound, ("worker0", 1), 11),
]


def _same(left, right):
    return torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right


def test_the_future_answers_the_call(group):
    def body():
        for function, args, expected in CASES:
            assert _same(rpc.rpc_sync("worker1", function, args=args), expected), function
            assert _same(rpc.rpc_async("worker1", function, args=args).wait(), expected), function
            assert _same(rpc.remote("worker1", function, args=args).to_here(), expected), function

    group(body)


def test_the_future_answers_through_references(group):
    def body():
        shelf = rpc.remote("worker1", Shelf, args=(10,))
        for name, args, expected in [
            ("bound", ("worker0", 1), 11),
            ("of_class", ("worker0", 1), ("Shelf", 2)),
            ("static", ("worker0", 1), 3),
            ("coroutine", ("worker0", 1), 11),
            ("plain", (), 10),
        ]:
            assert getattr(shelf.rpc_sync(), name)(*args) == expected
            assert getattr(shelf.rpc_async(), name)(*args).wait() == expected
            assert getattr(shelf.remote(), name)(*args).to_here() == expected

    group(body)


def test_locally_it_is_the_function_it_was(alone):
    assert later_add.__name__ == "later_add"
    assert isinstance(later_add("me", 1, torch.ones(1)), torch.futures.Future)
    with pytest.raises(TypeError, match="inside staticmethod"):
        functions.async_execution(staticmethod(add))


@pytest.mark.parametrize("use", ["sync", "async", "remote"])
def test_a_wrong_return_type_is_an_error(alone, use):
    def call(function, *args):
        if use == "sync":
            return rpc.rpc_sync("me", function, args=args)
        if use == "async":
            return rpc.rpc_async("me", function, args=args).wait()
        return rpc.remote("me", function, args=args).to_here()

    with pytest.raises(RuntimeError, match=r"must return a torch\.futures\.Future object, not Tensor"):
        call(returns_a_tensor)
    with pytest.raises(KeyError, match="before the future"):
        call(raises)
    with pytest.raises(TypeError):
        call(fails_later, "me")
    for kind in (torch.futures.Future, futures.Future):
        with pytest.raises(LookupError, match="by hand"):
            call(fails_by_hand, kind)
    with pytest.raises(LookupError, match="in a callback"):
        call(fails_in_a_callback, "me")


def test_a_future_that_nobody_can_complete_is_an_error(alone):
    with pytest.raises(Error, match="dropped without an answer"):
        rpc.rpc_sync("me", forgotten)


_waiting = []
_arrived = threading.Semaphore(0)


@functions.async_execution
def held():
    future = torch.futures.Future()
    _waiting.append(future)
    _arrived.release()
    return future


def test_no_thread_waits_for_the_future(tmp_path):
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/store", num_worker_threads=1)
    rpc.init_rpc("me", rank=0, world_size=1, rpc_backend_options=options)
    try:
        calls = [rpc.rpc_async("me", held) for _ in range(100)]
        for _ in calls:
            assert _arrived.acquire(timeout=50)
        before = threading.active_count()
        assert before < 50
        assert rpc.rpc_sync("me", add, args=(1, 2)) == 3
        for number, future in enumerate(_waiting):
            future.set_result(number)
        assert sorted(call.wait() for call in calls) == list(range(100))
    finally:
        _waiting.clear()
        rpc.shutdown()


_lock = threading.Lock()


class NeedsTheLock:
    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        with _lock:
            return NeedsTheLock, (self.value,)


@functions.async_execution
def completed_under_a_lock():
    future = torch.futures.Future()

    def complete():
        with _lock:
            future.set_result(NeedsTheLock(5))

    threading.Thread(target=complete).start()
    return future


def test_results_are_not_encoded_under_locks_of_who_completes(alone):
    assert rpc.rpc_sync("me", completed_under_a_lock).value == 5


@functions.async_execution
def scaled_later(to, x):
    return rpc.rpc_async(to, torch.mul, args=(x, 3.0)).then(lambda done: done.wait() * 2)


async def scaled_in_a_coroutine(to, x):
    async def times(by):
        return await rpc.rpc_async(to, torch.mul, args=(x, by))

    one, two = await asyncio.gather(times(1.0), times(2.0))
    return (one + two) * 2


@pytest.mark.parametrize("function", [scaled_later, scaled_in_a_coroutine])
def test_gradients_flow_through_the_later_answer(group, function):
    def body():
        x = torch.ones(3, requires_grad=True)
        with autograd.context() as context:
            loss = rpc.rpc_sync("worker1", function, args=("worker2", x)).sum()
            autograd.backward(context, [loss])
            assert torch.equal(autograd.get_gradients(context)[x], torch.full((3,), 6.0))

    group(body, world_size=3)


async def doubled(x):
    await asyncio.sleep(0)
    return x * 2


async def on_which_thread():
    return threading.current_thread().name


async def meet():
    """Returns once two calls of it run at the same time."""
    global _meeting
    if _meeting is None:
        _meeting = asyncio.Event()
        await _meeting.wait()
        _meeting = None
    else:
        _meeting.set()
    return True


_meeting = None


async def fails_after_a_step():
    await asyncio.sleep(0)
    raise LookupError("in a coroutine")


async def cancels_itself():
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


async def never():
    await asyncio.Event().wait()


async def ends_with(kind):
    if kind == "stop":
        asyncio.get_running_loop().stop()
        return 5
    raise {"exit": SystemExit, "interrupt": KeyboardInterrupt}[kind](5)


def test_coroutines_run_on_one_loop_thread(group):
    def body():
        assert rpc.rpc_sync("worker1", doubled, args=(4,)) == 8
        assert rpc.rpc_async("worker1", doubled, args=(4,)).wait() == 8
        assert rpc.remote("worker1", doubled, args=(4,)).to_here() == 8
        names = {rpc.rpc_sync("worker1", on_which_thread) for _ in range(3)}
        assert names == {"gradwire-asyncio"}
        assert [f.wait() for f in [rpc.rpc_async("worker1", meet), rpc.rpc_async("worker1", meet)]] == [True, True]
        with pytest.raises(LookupError, match="in a coroutine"):
            rpc.rpc_sync("worker1", fails_after_a_step)
        with pytest.raises(RuntimeError, match="cancelled"):
            rpc.rpc_sync("worker1", cancels_itself)

    group(body)


def test_coroutines_end_with_their_worker(alone):
    future = rpc.rpc_async("me", never)
    assert rpc.rpc_sync("me", on_which_thread) == "gradwire-asyncio"
    rpc.shutdown(graceful=False)
    with pytest.raises(RuntimeError):
        future.wait()
    assert all(thread.name != "gradwire-asyncio" for thread in threading.enumerate())


_started = threading.Event()
_ended = []


async def waits_to_be_cancelled():
    _started.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        _ended.append("cancelled")
        raise


def has_started():
    return _started.wait(20)


def test_c1_a_cancelled_call_cancels_its_coroutine(alone):
    _started.clear()
    _ended.clear()
    future = rpc.rpc_async("me", waits_to_be_cancelled)
    assert has_started()
    assert future.cancel()
    with pytest.raises(Error) as caught:
        future.wait()
    assert caught.value.code == "Cancelled"
    rpc.shutdown(timeout=20)  # which waits for what runs
    assert _ended == ["cancelled"]


def test_c1_a_lost_caller_ends_its_coroutines(group):
    def body():
        rpc.rpc_async("worker1", waits_to_be_cancelled)
        assert rpc.rpc_sync("worker1", has_started)
        rpc.shutdown(graceful=False)  # and worker1 ends, though nothing wakes its coroutine

    group(body)


async def blocks(how):
    if how == "rpc_sync":
        return rpc.rpc_sync("me", add, args=(1, 2))
    if how == "wait":
        return rpc.rpc_async("me", doubled, args=(1,)).wait()
    if how == "all_gather":
        return rpc.all_gather(1)
    if how == "local_value":
        return rpc.remote("me", never).local_value()
    return rpc.remote("me", doubled, args=(1,)).rpc_sync().bit_length()


@pytest.mark.parametrize("how", ["rpc_sync", "wait", "all_gather", "local_value", "proxy"])
def test_a_coroutine_that_would_block_the_loop_is_told_so_at_once(alone, how):
    with pytest.raises(RuntimeError, match=r"must not block.*[Aa]wait rpc_async"):
        rpc.rpc_sync("me", blocks, args=(how,), timeout=20)
    assert rpc.rpc_sync("me", doubled, args=(2,), timeout=20) == 4
    rpc.shutdown(graceful=False)


async def uses_what_is_there(rref):
    future = futures.Future()
    future.set_result(2)
    here = await asyncio.to_thread(rpc.rpc_sync, "me", add, (1, 1))
    return rref.local_value() + rref.to_here() + future.wait() + here


def test_a_coroutine_may_use_what_is_there(alone):
    assert rpc.rpc_sync("me", uses_what_is_there, args=(rpc.RRef(5),), timeout=20) == 14


@pytest.mark.parametrize("kind", ["exit", "interrupt", "stop"])
def test_c1_a_coroutine_that_ends_the_loop_ends_alone(alone, kind):
    if kind == "stop":
        assert rpc.rpc_sync("me", ends_with, args=(kind,), timeout=20) == 5
    else:
        with pytest.raises(RemoteError, match="the coroutine ended with"):
            rpc.rpc_sync("me", ends_with, args=(kind,), timeout=20)
    assert rpc.rpc_sync("me", doubled, args=(2,), timeout=20) == 4
    rpc.shutdown()


_made = weakref.WeakSet()


@functions.async_execution
def watched():
    future = futures.Future()
    _made.add(future)
    future.set_result(1)
    return future


def test_nothing_outlives_its_call(alone):
    for _ in range(3):
        rpc.rpc_sync("me", watched)
        rpc.rpc_sync("me", doubled, args=(1,))
    rpc.rpc_sync("me", on_which_thread)  # the loop may still be in the last step of this one, not of the others
    gc.collect()
    assert not _made
    assert len([found for found in gc.get_objects() if type(found).__name__ == "_Steps"]) <= 1
