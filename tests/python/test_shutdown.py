"""Shutdown from places and at times that nobody should choose."""

import threading

import pytest

from gradwire import Error, rpc


def add(x, y=1):
    return x + y


def shut_down(graceful):
    rpc.shutdown(graceful=graceful)


async def shut_down_in_coroutine(graceful):
    rpc.shutdown(graceful=graceful)


def wait_for_release():
    assert _release.wait(50)
    return rpc.get_worker_info().name


_release = threading.Event()


@pytest.fixture(autouse=True)
def _hold():
    _release.clear()
    yield
    _release.set()


def in_thread(function, *arguments, **named):
    """A thread that runs `function`, and what it has raised, as a list."""
    raised = []

    def run():
        try:
            function(*arguments, **named)
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised


@pytest.mark.parametrize("graceful", [True, False])
@pytest.mark.parametrize("function", [shut_down, shut_down_in_coroutine])
def test_c1_a_served_function_cannot_shut_down(alone, function, graceful):
    with pytest.raises(Error, match="wait for itself"):
        rpc.rpc_sync("me", function, args=(graceful,), timeout=20)
    assert rpc.rpc_sync("me", add, args=(1,)) == 2


def test_c1_a_callback_cannot_shut_down(alone):
    future = rpc.rpc_async("me", wait_for_release)
    after = future.then(lambda _: rpc.shutdown())
    _release.set()
    with pytest.raises(Error, match="wait for itself"):
        after.wait()
    assert rpc.rpc_sync("me", add, args=(1,)) == 2


def test_m2_a_second_shutdown_waits_for_the_first(alone):
    future = rpc.rpc_async("me", wait_for_release)
    first, of_first = in_thread(rpc.shutdown)
    while rpc._default.worker.counts()["serving_calls"] == 0:
        pass
    second, of_second = in_thread(rpc.shutdown)
    second.join(0.5)
    assert second.is_alive()
    _release.set()
    for thread in (first, second):
        thread.join(20)
        assert not thread.is_alive()
    assert of_first == of_second == []
    assert future.wait() == "me"  # until the end the function that was served had its worker


def test_m2_a_hard_shutdown_ends_the_wait_of_a_graceful_one(alone):
    future = rpc.rpc_async("me", wait_for_release)
    first, of_first = in_thread(rpc.shutdown)
    first.join(0.2)
    assert first.is_alive()
    rpc.shutdown(graceful=False)
    first.join(20)
    assert not first.is_alive()
    assert "has shut down" in str(of_first[0])
    with pytest.raises(Error):
        future.wait()


def test_m4_a_late_end_of_a_shutdown_leaves_the_next_worker_alone(alone, tmp_path):
    ended = rpc._default.worker
    rpc.shutdown()
    where = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path / 'next'}")
    rpc.init_rpc("me", rank=0, world_size=1, rpc_backend_options=where)
    rpc._default.end(ended)
    assert rpc.rpc_sync("me", add, args=(1,)) == 2
