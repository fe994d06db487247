"""What calls belong to, their autograd context and deadline, follows tasks, callbacks and threads of a program."""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from gradwire import Error, autograd, functions, futures, rpc


def double(x):
    return x * 2


def call(x, to="worker1"):
    return rpc.rpc_sync(to, double, args=(x,))


def start(x, to="worker1"):
    return rpc.rpc_async(to, double, args=(x,))


def gradient(context_id, x, y):
    """Of sum(y), as a number: all elements are the same."""
    autograd.backward(context_id, [y.sum()])
    return autograd.get_gradients(context_id)[x][0].item()


def leaf():
    return torch.ones(2, requires_grad=True)


async def entered_by_a_task(to, other_is_in, other_goes_on):
    """Makes one call before and one after another task has been in a context of its own."""
    x = leaf()
    with autograd.context() as context_id:
        y = await start(x, to)
        other_is_in.set()
        await other_goes_on.wait()
        y = await start(y, to)
        return await asyncio.to_thread(gradient, context_id, x, y * 5)


async def two_tasks(to):
    first, second = asyncio.Event(), asyncio.Event()
    results = await asyncio.gather(entered_by_a_task(to, first, second), entered_by_a_task(to, second, first))
    outside = await start(torch.ones(2), to)
    return results, outside.requires_grad


# A5
def test_a_context_belongs_to_the_task_that_entered_it(group):
    def body():
        assert asyncio.run(two_tasks("worker1")) == ([20.0, 20.0], False)
        assert rpc.rpc_sync("worker1", two_tasks, args=("worker0",)) == ([20.0, 20.0], False)

    group(body)


async def calls_back(x):
    async def child(y):
        return await start(y, "worker0")

    y = await asyncio.create_task(child(x))
    return await asyncio.to_thread(call, y, "worker0")


# A1
def test_what_a_coroutine_starts_is_in_the_context_of_its_call(group):
    def body():
        x = leaf()
        with autograd.context() as context_id:
            assert gradient(context_id, x, rpc.rpc_sync("worker1", calls_back, args=(x,))) == 4

    group(body)


def chain(x, to):
    return start(x, to).then(lambda done: call(done.value(), to)).then(lambda done: call(done.value(), to)).wait()


@functions.async_execution
def chain_later(x, to):
    return start(x, to).then(lambda done: call(done.value(), to)).then(lambda done: call(done.value(), to))


def collected(x, to):
    both = futures.collect_all([start(x, to), start(x * 3, to)])
    return both.then(lambda done: call(sum(each.value() for each in done.value()), to)).wait()


# A1
@pytest.mark.parametrize(("function", "wanted"), [(chain, 8), (chain_later, 8), (collected, 16)])
def test_callbacks_are_in_the_context_that_they_were_added_in(group, function, wanted):
    def body():
        x = leaf()
        with autograd.context() as context_id:
            y = function(x, "worker1")
            y = y.wait() if isinstance(y, rpc.Future) else y
            assert gradient(context_id, x, y) == wanted
        with autograd.context() as context_id:
            assert gradient(context_id, x, rpc.rpc_sync("worker1", function, args=(x, "worker0"))) == wanted

    group(body)


def by_a_pool(x, to):
    with ThreadPoolExecutor(2) as pool:
        parts = [pool.submit(contextvars.copy_context().run, call, x, to) for _ in range(2)]
        return sum(part.result() for part in parts)


# A1
def test_a_copied_context_takes_threads_of_a_program_in(group):
    def body():
        x = leaf()
        with autograd.context() as context_id:
            assert gradient(context_id, x, by_a_pool(x, "worker1")) == 4
        with autograd.context() as context_id:
            assert gradient(context_id, x, rpc.rpc_sync("worker1", by_a_pool, args=(x, "worker0"))) == 4

    group(body)


_mark = contextvars.ContextVar("mark", default="none")


def leaves_a_mark():
    before = _mark.get()
    _mark.set("left")
    return before


def test_served_functions_do_not_see_what_others_have_set(group):
    def body():
        assert [rpc.rpc_sync("worker1", leaves_a_mark) for _ in range(3)] == ["none"] * 3

    group(body, num_worker_threads=1)


@functions.async_execution
def never_answered():
    _kept.append(rpc.Future())
    return _kept[-1]


_kept = []
_callback_ended = threading.Event()


def waits_in_a_callback():
    def wait(done):
        with pytest.raises(Error) as caught:
            rpc.rpc_sync("worker0", never_answered)  # for a minute, by itself
        _kept.append(caught.value.code)
        _callback_ended.set()

    start(torch.ones(1), "worker0").then(wait).wait()


def how_the_callback_ended():
    assert _callback_ended.wait(20)
    return _kept[-1]


# C2
def test_callbacks_inherit_the_deadline(group):
    def body():
        with pytest.raises(Error, match=r"deadline|timeout"):
            rpc.rpc_sync("worker1", waits_in_a_callback, timeout=0.5)
        assert rpc.rpc_sync("worker1", how_the_callback_ended) == "TimedOut"
        for future in _kept:
            future.set_result(None)

    group(body)
