"""Futures of calls in coroutines of a program's own event loop."""

import asyncio
import threading

import pytest

from gradwire import futures, rpc

_started = threading.Event()
_ended = []


def add(x, y):
    return x + y


async def fails_after_a_step():
    await asyncio.sleep(0)
    raise LookupError("in a coroutine")


async def waits_to_be_cancelled():
    _started.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        _ended.append("cancelled")
        raise


def has_started():
    return _started.wait(20)


def test_futures_can_be_awaited(alone):
    async def main():
        both = await asyncio.gather(rpc.rpc_async("me", add, args=(1, 2)), rpc.rpc_async("me", add, args=(3, 3)))
        assert both == [3, 6]
        with pytest.raises(LookupError, match="in a coroutine"):
            await rpc.rpc_async("me", fails_after_a_step)
        pending = futures.Future()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(_awaited(pending)), 0.01)
        pending.set_result(1)  # wakes nobody, harms nobody
        assert await pending == 1
        return True

    assert asyncio.run(main())


async def _awaited(future):
    return await future


@pytest.mark.parametrize("how", ["cancel", "wait_for", "TaskGroup"])
def test_c1_what_ends_a_wait_cancels_the_call(alone, how):
    async def waits():
        return await rpc.rpc_async("me", waits_to_be_cancelled)

    async def fails():
        assert await asyncio.to_thread(has_started)
        raise KeyError("planted")

    async def main():
        if how == "TaskGroup":
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(waits())
                tasks.create_task(fails())
        waiting = asyncio.create_task(waits())
        assert await asyncio.to_thread(has_started)
        if how == "cancel":
            waiting.cancel()
        await asyncio.wait_for(waiting, 0.01 if how == "wait_for" else None)

    _started.clear()
    _ended.clear()
    with pytest.raises((asyncio.CancelledError, asyncio.TimeoutError, ExceptionGroup)):
        asyncio.run(main())
    rpc.shutdown(timeout=20)  # which waits for what runs
    assert _ended == ["cancelled"]
