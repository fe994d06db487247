"""Futures: torch's own, with errors that keep their type."""

import threading

import pytest
import torch

from gradwire import Error, futures, rpc


def add(x, y=1):
    return x + y


def fail(text):
    raise ValueError(text)


def wait_for_release():
    assert _release.wait(50)
    return 5


def release():
    _release.set()


_release = threading.Event()


class DiskError(OSError):
    pass


def test_a_future_is_torchs(alone):
    future = rpc.rpc_async("me", add, args=(1,))
    assert isinstance(future, torch.futures.Future)
    assert isinstance(future, torch._C.Future)
    assert future.wait() == 2
    assert future.wait() == 2
    assert future.done()
    assert future.value() == 2
    with pytest.raises(RuntimeError, match="can only be marked completed once"):
        future.set_result(3)


def test_errors_keep_their_type_at_each_wait(alone):
    future = rpc.rpc_async("me", fail, args=("x",))
    for _ in range(3):
        with pytest.raises(ValueError, match="x"):
            future.wait()
    with pytest.raises(ValueError, match="x"):
        future.value()
    with pytest.raises(ValueError, match="x"):
        torch.futures.wait_all([rpc.rpc_async("me", add, args=(1,)), rpc.rpc_async("me", fail, args=("x",))])
    with pytest.raises(ValueError, match="x"):
        futures.wait_all([rpc.rpc_async("me", fail, args=("x",))])


def test_then_runs_in_order_and_chains(alone):
    seen = []
    future = rpc.rpc_async("me", add, args=(1,))
    future.add_done_callback(lambda f: seen.append(f.wait()))
    chained = future
    for _ in range(20):
        chained = chained.then(lambda f: f.wait() + 1)
    assert chained.wait() == 22
    assert seen == [2]
    assert type(chained) is futures.Future


def test_a_callback_is_given_the_future_itself(alone):
    given = []
    future = rpc.rpc_async("me", add, args=(1,))
    future.then(given.append).wait()
    assert given[0] is future


def test_a_callback_may_call_and_wait(alone):
    future = rpc.rpc_async("me", add, args=(1,)).then(lambda f: rpc.rpc_sync("me", add, args=(f.wait(), 5)))
    assert future.wait() == 7
    future = rpc.rpc_async("me", add, args=(1,)).then(lambda f: rpc.rpc_async("me", add, args=(f.wait(), 5)).wait())
    assert future.wait() == 7


def test_what_a_callback_raises(alone):
    future = rpc.rpc_async("me", add, args=(1,))
    wrong = future.then(lambda f: f.wait() + "text")
    for _ in range(2):
        with pytest.raises(TypeError, match="unsupported operand") as caught:
            wrong.wait()
        assert isinstance(caught.value, RuntimeError)
        assert type(caught.value.__cause__) is TypeError
    with pytest.raises(RuntimeError, match="missing 1 required positional"):
        future.then(lambda f, extra: None).wait()
    again = rpc.rpc_async("me", fail, args=("x",)).then(lambda f: f.wait()).then(lambda f: f.wait())
    with pytest.raises(ValueError, match="x") as caught:
        again.wait()
    assert isinstance(caught.value, RuntimeError)
    with pytest.raises(DiskError) as caught:
        future.then(lambda f: exec("raise DiskError(5, 'full')", {"DiskError": DiskError})).wait()
    assert isinstance(caught.value, RuntimeError)
    assert "full" in str(caught.value)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        future.then(None)


def test_a_done_callback_that_fails_is_reported(alone, capsys):
    future = rpc.rpc_async("me", add, args=(1,))
    future.add_done_callback(lambda f: fail("reported"))
    future.then(lambda f: None).wait()
    assert "ValueError: reported" in capsys.readouterr().err


def test_a_future_of_the_program():
    future = futures.Future()
    assert not future.done()
    following = future.then(lambda f: f.wait() + 1)
    setter = threading.Thread(target=future.set_result, args=(1,))
    setter.start()
    assert following.wait() == 2
    setter.join()
    failed = futures.Future()
    failed.set_exception(KeyError("k"))
    with pytest.raises(KeyError, match="k"):
        failed.wait()
    with pytest.raises(TypeError, match="with an exception"):
        futures.Future().set_exception("text")
    with pytest.raises(RuntimeError, match=r"Can not pickle torch\.futures"):
        failed.__reduce__()


def test_collect_all(alone):
    several = [rpc.rpc_async("me", add, args=(i,)) for i in range(5)]
    assert [f.wait() for f in futures.collect_all(several).wait()] == [1, 2, 3, 4, 5]
    assert futures.wait_all(several) == [1, 2, 3, 4, 5]
    assert torch.futures.wait_all(several) == [1, 2, 3, 4, 5]
    assert futures.wait_all([]) == []


def test_wait_all_ends_at_the_first_error(group):
    def body():
        pending = rpc.rpc_async("worker1", wait_for_release)
        with pytest.raises(ValueError, match="first"):
            futures.wait_all([pending, rpc.rpc_async("worker1", fail, args=("first",))])
        assert not pending.done()
        rpc.rpc_sync("worker1", release)
        assert pending.wait() == 5

    group(body)


def test_a_dropped_future_loses_no_call(group):
    def body():
        rpc.rpc_async("worker1", wait_for_release)
        rpc.rpc_async("worker1", fail, args=("nobody reads this",))
        rpc.rpc_sync("worker1", release)

    group(body)


def test_a_future_after_shutdown(alone):
    future = rpc.rpc_async("me", add, args=(1,))
    failed = rpc.rpc_async("me", fail, args=("x",))
    rpc.shutdown()
    assert future.wait() == 2
    with pytest.raises(ValueError, match="x"):
        failed.wait()


def test_a_thousand_outstanding_calls(group):
    def body():
        x = torch.ones(2)
        several = [rpc.rpc_async("worker1", torch.add, args=(x, i)) for i in range(1000)]
        assert [f.wait()[0].item() for f in several] == [1 + i for i in range(1000)]

    group(body)


# The pool sees a wait inside a handler (C3).
def test_waiting_for_a_future_in_a_handler_takes_no_thread(group):
    def body():
        assert rpc.rpc_sync("worker1", chain, args=(30,)) == 30

    group(body, num_worker_threads=1)


def chain(depth):
    return 0 if depth == 0 else 1 + rpc.rpc_async(f"worker{depth % 2}", chain, args=(depth - 1,)).wait()


# So deep that the threads which the pool adds for waits that it does not see (64) would not do.
@pytest.mark.parametrize("wait", ["wait_all", "collect_all"])
def test_torchs_own_ways_to_wait_for_several_take_no_thread(group, wait):
    def body():
        assert rpc.rpc_sync("worker1", torch_chain, args=(150, wait)) == 150

    group(body, num_worker_threads=1)


def torch_chain(depth, wait):
    if depth == 0:
        return 0
    following = [rpc.rpc_async(f"worker{depth % 2}", torch_chain, args=(depth - 1, wait))]
    if wait == "wait_all":
        return 1 + torch.futures.wait_all(following)[0]
    return 1 + torch.futures.collect_all(following).wait()[0].wait()


def test_torchs_collections_of_other_futures_are_its_own():
    future = torch.futures.Future()
    collected = torch.futures.collect_all([future])
    assert not isinstance(collected, futures.Future)
    future.set_result(1)
    assert [each.wait() for each in collected.wait()] == [1]


def test_a_future_fails_when_its_worker_is_gone_locally(alone):
    future = rpc.rpc_async("me", wait_for_release)
    leaver = threading.Thread(target=rpc.shutdown, kwargs={"graceful": False})
    leaver.start()
    with pytest.raises(Error):
        future.wait()
    release()
    leaver.join()


def test_a_cancelled_call_ends_at_once_and_its_result_is_discarded(alone):
    _release.clear()
    running = rpc.rpc_async("me", wait_for_release)
    called = []
    running.add_done_callback(called.append)
    assert running.cancel()
    assert running.done()
    assert called == [running]
    with pytest.raises(Error) as raised:
        running.wait()
    assert raised.value.code == "Cancelled"
    assert not running.cancel()
    release()
    ended = rpc.rpc_async("me", add, args=(1,))
    assert ended.wait() == 2
    assert not ended.cancel()
    assert not futures.Future().cancel()


def test_a_collection_is_done_when_all_are_although_one_has_failed():
    failed, pending = futures.Future(), futures.Future()
    collected = futures.collect_all([failed, pending])
    failed.set_exception(ValueError("x"))
    assert not collected.done()
    pending.set_result(1)
    assert collected.wait() == [failed, pending]
    assert futures.collect_all([]).wait() == []
