"""Workers that are killed: who is told, what their names are good for, and who is not taken for them."""

import multiprocessing
import os
import pickle
import queue
import signal
import traceback

import pytest
import torch
from conftest import LIMIT_S, options

from gradwire import Error, rpc

fork = multiprocessing.get_context("fork")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def same(value):
    return value


def join(store, name, rank, world_size=None):
    torch.set_num_threads(1)
    rpc.init_rpc(name, rank=rank, world_size=world_size, rpc_backend_options=options(store))


def told_to(losses):
    return lambda info, reason: losses.put((info.name, info.id, reason))


class Others:
    """Processes beside the test's own, each a worker that serves until it is killed or told to leave."""

    def __init__(self, store):
        self.store = store
        self.processes = {}

    def start(self, name, rank, world_size=None):
        """Returns at once; `meet` of them."""
        ready, leave = fork.Event(), fork.Event()

        def run():
            try:
                join(self.store, name, rank, world_size)
                ready.set()
                leave.wait()
                rpc.shutdown()
            except BaseException:
                traceback.print_exc()
                os._exit(1)

        process = fork.Process(target=run)
        process.start()
        self.processes[name] = process, ready, leave

    def meet(self, name):
        assert self.processes[name][1].wait(LIMIT_S)

    def kill(self, name):
        process, _, _ = self.processes.pop(name)
        process.kill()
        process.join()

    def leave(self, name):
        process, _, leave = self.processes.pop(name)
        leave.set()
        process.join(LIMIT_S)
        assert process.exitcode == 0


@pytest.fixture
def others(tmp_path):
    made = Others(tmp_path / "store")
    yield made
    if rpc._default.worker is not None:
        rpc.shutdown(graceful=False)
    for process, _, _ in made.processes.values():
        process.kill()


@pytest.mark.parametrize("is_open", [True, False])
def test_m1_a_killed_worker_is_told_of_once_to_each_callback(others, is_open):
    size = None if is_open else 3
    if is_open:
        join(others.store, "a", 0)
    for rank, name in enumerate("bc", start=1):
        others.start(name, rank, size)
    if not is_open:
        join(others.store, "a", 0, size)
    for name in "bc":
        others.meet(name)
    early, late = queue.Queue(), queue.Queue()
    rpc.on_worker_lost(told_to(early))
    for name in "bc":
        assert rpc.rpc_sync(name, same, args=(name,)) == name
    others.kill("b")
    name, rank, reason = early.get(timeout=LIMIT_S)
    assert (name, rank) == ("b", 1)
    assert "'b'" in reason
    assert [info.name for info in rpc.get_worker_infos()] == ["a", "c"]
    rpc.on_worker_lost(told_to(late))
    assert late.get(timeout=LIMIT_S) == ("b", 1, reason)
    for call in (rpc.rpc_sync, lambda *args, **kwargs: rpc.rpc_async(*args, **kwargs).wait()):
        with pytest.raises(Error, match="'b'") as caught:
            call("b", same, args=(1,))
        assert caught.value.code == "Disconnected"
    assert rpc.rpc_sync("c", same, args=(2,)) == 2
    if is_open:
        others.leave("c")
        while len(rpc.get_worker_infos()) > 1:
            pass
        with pytest.raises(Error, match="'c' has left") as caught:
            rpc.rpc_sync("c", same, args=(1,))
        assert caught.value.code == "Disconnected"
    else:
        others.processes["c"][2].set()
    rpc.shutdown()
    assert early.empty(), "who leaves is not lost"
    assert late.empty(), "once"


def test_m1_what_a_callback_raises_is_logged(others, caplog):
    join(others.store, "a", 0)
    others.start("b", 1)
    others.meet("b")
    losses = queue.Queue()

    def fails(info, reason):
        raise KeyError("planted")

    rpc.on_worker_lost(fails)
    rpc.on_worker_lost(told_to(losses))
    rpc.rpc_sync("b", same, args=(1,))
    others.kill("b")
    assert losses.get(timeout=LIMIT_S)[0] == "b"
    assert "planted" in caplog.text
    assert "'b'" in caplog.text
    with pytest.raises(TypeError, match="callable"):
        rpc.on_worker_lost(3)


def test_m1_a_callback_may_make_calls(others):
    join(others.store, "a", 0)
    for rank, name in enumerate("bc", start=1):
        others.start(name, rank)
        others.meet(name)
        rpc.rpc_sync(name, same, args=(1,))
    results = queue.Queue()
    rpc.on_worker_lost(lambda info, reason: results.put(rpc.rpc_sync("c", same, args=(info,))))
    others.kill("b")
    lost = results.get(timeout=LIMIT_S)
    assert (lost.name, lost.id) == ("b", 1)


@pytest.mark.parametrize("ends", ["kill", "leave"])
@pytest.mark.parametrize(("name_again", "rank_again"), [("b", 1), ("b", 5)])
def test_m1_a_worker_info_means_one_worker_and_not_its_successor(others, ends, name_again, rank_again):
    join(others.store, "a", 0)
    others.start("b", 1)
    others.meet("b")
    first = rpc.get_worker_info("b")
    rref = rpc.remote("b", same, args=(1,))
    assert rref.to_here() == 1
    assert rpc.rpc_sync(first, same, args=(1,)) == 1
    getattr(others, ends)("b")
    others.start(name_again, rank_again)
    others.meet(name_again)
    second = rpc.get_worker_info("b")
    travelled = pickle.loads(pickle.dumps(first))
    for stale in (first, travelled, rpc.rpc_sync("b", same, args=(first,)), rref.owner()):
        for use in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            with pytest.raises(Error, match=r"'b' of rank 1.*is gone: another worker has taken its name") as caught:
                use(stale, same, args=(2,))
            assert caught.value.code == "Disconnected"
    assert rpc.rpc_sync(second, same, args=(3,)) == 3
    assert rpc.rpc_sync(rpc.WorkerInfo("b", rank_again), same, args=(4,)) == 4
    assert str(first) == "WorkerInfo(id=1, name=b)"
    assert (first == second) == (rank_again == 1)
    with pytest.raises(Error, match="no worker 'b' of rank 7, but one of rank"):
        rpc.rpc_sync(rpc.WorkerInfo("b", 7), same, args=(5,))


def test_counts_are_public(alone):
    future = rpc.rpc_async("me", same, args=(1,))
    assert future.wait() == 1
    rref = rpc.RRef(1)
    counts = rpc.counts()
    assert counts["pending_calls"] == 0
    assert counts.keys() >= {"serving_calls", "owned_rrefs", "forks", "held_rrefs", "autograd_contexts"}
    del rref
