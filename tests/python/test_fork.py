"""Forked children of a process with a worker: they have copies of its objects, not its threads."""

import asyncio
import gc
import os
import signal
import time

import pytest

from gradwire import Error, autograd, futures, rpc


class Thing:
    def number(self):
        return 5


def owned():
    gc.collect()
    return rpc._default.worker.counts()["owned_rrefs"]


def in_child(function):
    """Runs `function` in a forked child, which ends in bounded time."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            function()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_c1_a_child_cannot_use_or_drop_what_is_the_parents(group):
    def body():
        reference = rpc.remote("worker1", Thing)
        own = rpc.RRef(Thing())
        future = rpc.rpc_async("worker1", time.sleep, args=(0.5,))
        following = future.then(lambda _: None)
        collected = futures.collect_all([futures.Future(), following, futures.Future()])
        context = autograd.context()
        context.__enter__()

        async def awaited():
            await following

        def child():
            nonlocal reference, own, context
            for use in (
                lambda: reference.to_here(),
                lambda: reference.confirmed_by_owner(),
                lambda: reference.rpc_sync().number(),
                lambda: own.local_value(),
                lambda: future.wait(),
                lambda: following.wait(),
                lambda: collected.wait(),
                lambda: asyncio.run(awaited()),
                lambda: futures.wait_all([future, following]),
                lambda: future.cancel(),
            ):
                with pytest.raises(Error, match=r"before the process was forked|has not been initialized"):
                    use()
            context.__exit__()
            reference = own = context = None
            gc.collect()

        in_child(child)
        assert rpc.rpc_sync("worker1", owned) == 1
        assert reference.rpc_sync().number() == 5
        assert own.local_value().number() == 5
        assert future.wait() is None
        context.__exit__()
        del reference
        while rpc.rpc_sync("worker1", owned) > 0:
            pass

    group(body)


# C1: a helper process of a worker has nothing of the worker's open, so that its peers see its death at once.
def test_c1_a_forked_helper_does_not_hide_that_its_parent_was_killed(scripts, tmp_path):
    text = """
    import os
    import signal
    import sys
    import gradwire
    from gradwire import rpc

    def fork_helper():
        child = os.fork()
        if child == 0:
            signal.alarm(100)
            signal.pause()
        return child

    def killed():
        os.kill(os.getpid(), signal.SIGKILL)

    rank = int(sys.argv[1])
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{sys.argv[2]}")
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 1:
        signal.pause()
    helper = rpc.rpc_sync("worker1", fork_helper)
    try:
        rpc.rpc_sync("worker1", killed, timeout=50)
    except gradwire.Error as error:
        print(error.code)
    os.kill(helper, signal.SIGKILL)
    rpc.shutdown(graceful=False)
    """
    scripts.start(text, 1, tmp_path / "store")
    code, out, err = scripts.run(text, 0, tmp_path / "store")
    assert (code, out) == (0, "Disconnected\n"), err


def test_m4_a_child_starts_a_worker_of_its_own(alone, tmp_path):
    reference = rpc.remote("me", Thing)
    assert reference.rpc_sync().number() == 5

    def child():
        where = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path / 'child'}")
        rpc.init_rpc("me", rank=0, world_size=1, rpc_backend_options=where)
        assert rpc.rpc_sync("me", Thing).number() == 5
        with pytest.raises(Error, match="before the process was forked"):
            rpc.rpc_sync("me", len, args=([reference],))
        rpc.shutdown()

    in_child(child)
    assert reference.rpc_sync().number() == 5
