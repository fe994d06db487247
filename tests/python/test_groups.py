"""Gatherings over sets of workers, and groups whose workers come and go."""

import multiprocessing
import os
import signal
import traceback

import pytest
import torch
from conftest import LIMIT_S, options

import gradwire
from gradwire import Error, rpc

fork = multiprocessing.get_context("fork")


def gather(value, names=None, timeout=-1.0):
    return gradwire.all_gather(value, names, timeout)


def own_name_and_tensor():
    name = rpc.get_worker_info().name
    return gather({"name": name, "tensor": torch.full((3,), float(name[-1])), "rref": rpc.RRef(name)})


def three_times():
    name = rpc.get_worker_info().name
    return [gather((name, number)) for number in range(3)]


def refused():
    try:
        gather(1, ["worker0", "worker2"])
    except Error as error:
        return error.code, str(error)


def late_part():
    try:
        gather(1, ["worker0", "worker1"])
    except Error as error:
        return error.code, str(error)


def test_all_gather_carries_tensors_and_references(group):
    def body():
        others = [rpc.rpc_async(f"worker{rank}", own_name_and_tensor) for rank in (1, 2)]
        for found in [own_name_and_tensor(), *(other.wait() for other in others)]:
            assert list(found) == ["worker0", "worker1", "worker2"]
            for name, part in found.items():
                assert part["name"] == name
                assert torch.equal(part["tensor"], torch.full((3,), float(name[-1])))
                assert part["rref"].owner_name() == name
                assert part["rref"].to_here() == name

    group(body, world_size=3)


def test_gatherings_of_one_set_come_in_order(group):
    def body():
        other = rpc.rpc_async("worker1", three_times)
        expected = [{"worker0": ("worker0", number), "worker1": ("worker1", number)} for number in range(3)]
        assert three_times() == expected
        assert other.wait() == expected

    group(body)


def test_sets_do_not_disturb_each_other(group):
    def body():
        sets = ["worker0", "worker1"], ["worker1", "worker2"], ["worker2"], ["worker0", "worker1", "worker2"]
        calls = [
            (names, rpc.rpc_async(name, gather, args=(name, names)))
            for names in sets
            for name in names
            if name != "worker0"
        ]
        for names in sets:
            if "worker0" in names:
                assert gather("worker0", names) == {name: name for name in names}
        for names, call in calls:
            assert call.wait() == {name: name for name in names}

    group(body, world_size=3)


LARGE = 4_000_000


def gather_large_and_spoil(rank):
    """Gathers a large tensor, keeps copies of what came, and writes over all that the program can reach."""
    tensor = torch.full((LARGE,), float(rank))
    found = gather(tensor)
    own = found[f"worker{rank}"]
    assert own.data_ptr() != tensor.data_ptr()
    tensor.zero_()
    copies = [part.clone() for part in found.values()]
    for part in found.values():
        part.fill_(-1.0)
    return [(part.min().item(), part.max().item()) for part in copies]


def test_m5_what_is_passed_and_what_is_returned_is_the_programs_own_again(group):
    def body():
        for _ in range(3):
            others = [rpc.rpc_async(f"worker{rank}", gather_large_and_spoil, args=(rank,)) for rank in (1, 2)]
            for found in [gather_large_and_spoil(0), *(other.wait() for other in others)]:
                assert found == [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)]

    group(body, world_size=3)


def test_barrier_is_passed_by_all_or_none(group):
    def body():
        other = rpc.rpc_async("worker1", gradwire.barrier)
        assert not other.done()  # this worker is not there yet
        gradwire.barrier()
        other.wait()

    group(body)


def test_one_who_does_not_gather_is_refused(group):
    def body():
        code, text = rpc.rpc_sync("worker1", refused)
        assert code == "Invalid"
        assert "'worker1' is not among those that gather: worker0, worker2" in text

    group(body, world_size=3)


def test_a_timeout_names_who_has_not_come_and_the_next_gathering_works(group):
    def body():
        with pytest.raises(Error, match="these have not come: worker1") as caught:
            gather(0, ["worker0", "worker1"], timeout=0.05)
        assert caught.value.code == "TimedOut"
        code, text = rpc.rpc_sync("worker1", late_part)  # its part of the gathering that was given up
        assert code == "TimedOut"
        assert "worker1" in text
        other = rpc.rpc_async("worker1", gather, args=(1, ["worker0", "worker1"]))
        assert gather(0, ["worker0", "worker1"]) == other.wait() == {"worker0": 0, "worker1": 1}

    group(body)


def serving():
    return rpc._default.required().counts()["serving_calls"]


def killed(rank):
    """Waits in its own process until worker0 leads a gathering that others wait in, and is killed."""
    if rank == 0:
        while serving() < 2:  # the parts of worker1 and worker2
            pass
    else:
        while rpc.rpc_sync("worker0", serving) < 3:  # the parts of worker0 and worker1, and this call
            pass
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("wait", [gradwire.barrier, lambda timeout: gather("part", None, timeout)])
def test_a_killed_worker_ends_a_gathering_at_once_and_is_named(tmp_path, victim, wait):
    store, reports = tmp_path / "store", fork.SimpleQueue()

    def run(rank):
        join(store, rank, world_size=3)
        if rank == victim:
            killed(rank)
        with pytest.raises(Error) as caught:
            wait(timeout=10 * LIMIT_S)  # which this test does not wait for
        reports.put((caught.value.code, str(caught.value)))
        rpc.shutdown()

    processes = [fork.Process(target=run, args=(rank,)) for rank in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LIMIT_S)
    assert [process.exitcode for process in processes] == [-signal.SIGKILL if r == victim else 0 for r in range(3)]
    for _ in range(2):
        code, text = reports.get()
        assert code == "Disconnected"
        assert f"'worker{victim}'" in text


def test_worker_infos(group):
    def body():
        assert [(info.name, info.id) for info in gradwire.get_worker_infos()] == [("worker0", 0), ("worker1", 1)]

    group(body)


def same(value):
    return value


def join(store, rank, name=None, world_size=None):
    rpc.init_rpc(name or f"worker{rank}", rank=rank, world_size=world_size, rpc_backend_options=options(store))


def together(tmp_path, *bodies):
    """Runs each body(meet, store) in a process of its own; meet() waits until all of them have called it."""
    barrier = fork.Barrier(len(bodies))
    reports = fork.SimpleQueue()

    def run(body):
        torch.set_num_threads(1)
        try:
            body(lambda: barrier.wait(LIMIT_S), tmp_path / "store")
            reports.put(None)
        except BaseException:
            barrier.abort()
            reports.put(traceback.format_exc())

    processes = [fork.Process(target=run, args=(body,)) for body in bodies]
    for process in processes:
        process.start()
    faults = [reports.get() for _ in processes]
    for process in processes:
        process.join(LIMIT_S)
        assert process.exitcode == 0
    assert not any(faults), "\n".join(filter(None, faults))


def test_workers_come_and_go(tmp_path):
    def first(meet, store):
        join(store, 0)
        meet()  # the others join, at once
        meet()
        for rank in (1, 2):
            assert rpc.rpc_sync(f"worker{rank}", same, args=(rank,)) == rank
        assert [info.name for info in rpc.get_worker_infos()] == ["worker0", "worker1", "worker2"]
        meet()  # worker1 leaves
        meet()
        with pytest.raises(Error, match="worker1' has left"):
            rpc.rpc_sync("worker1", same, args=(1,))
        assert rpc.rpc_sync("worker2", same, args=(2,)) == 2
        meet()  # and comes again
        meet()
        assert rpc.rpc_sync("worker1", same, args=(3,)) == 3
        meet()
        rpc.shutdown()

    def second(meet, store):
        meet()
        join(store, 1)
        meet()
        meet()
        rpc.shutdown()  # waits for nobody: the others are not there
        meet()
        meet()
        join(store, 1)
        assert rpc.rpc_sync("worker2", same, args=(4,)) == 4
        meet()
        meet()
        rpc.shutdown()

    def third(meet, store):
        meet()
        join(store, 2)
        for _ in range(6):
            meet()
        rpc.shutdown()

    together(tmp_path, first, second, third)


def test_names_and_ranks_of_an_open_group_are_unique(tmp_path):
    def first(meet, store):
        join(store, 0)
        meet()
        meet()
        rpc.shutdown()

    def second(meet, store):
        meet()
        with pytest.raises(Error, match="name 'worker0' is not unique"):
            join(store, 1, name="worker0")
        with pytest.raises(Error, match="rank 0 is not unique"):
            join(store, 0, name="other")
        join(store, 1)  # what was taken for the refused ones is free again
        rpc.shutdown()
        meet()

    together(tmp_path, first, second)


def test_a_killed_worker_leaves_its_name_and_its_rank_to_the_next(tmp_path):
    def stays(meet, store):
        join(store, 0)
        meet()
        meet()
        assert rpc.rpc_sync("worker1", same, args=(1,)) == 1
        assert [info.name for info in rpc.get_worker_infos()] == ["worker0", "worker1"]
        meet()
        rpc.shutdown()

    def comes_again(meet, store):
        meet()

        def dies():
            join(store, 1)
            assert rpc.rpc_sync("worker0", same, args=(2,)) == 2
            os.kill(os.getpid(), signal.SIGKILL)

        process = fork.Process(target=dies)
        process.start()
        process.join(LIMIT_S)
        assert process.exitcode == -signal.SIGKILL
        join(store, 1)
        assert rpc.rpc_sync("worker0", same, args=(3,)) == 3
        meet()
        meet()
        rpc.shutdown()

    together(tmp_path, stays, comes_again)


def test_fixed_and_open_groups_do_not_mix(tmp_path):
    def first(meet, store):
        join(store, 0, world_size=1)
        meet()
        meet()
        rpc.shutdown()

    def second(meet, store):
        meet()
        with pytest.raises(Error, match="mixes statically and dynamically initialized members"):
            join(store, 1)
        meet()

    together(tmp_path, first, second)
