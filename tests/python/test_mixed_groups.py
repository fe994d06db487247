"""Groups of workers under torch's names, native ones and one in C++: they gather, wait and end together."""

import multiprocessing
import os
import signal
import subprocess
import traceback
from pathlib import Path

import pytest
import torch
from conftest import LIMIT_S, options

import gradwire
from gradwire import rpc

PEER = Path(gradwire.__path__[0]).parent.parent / "tests" / "interop_peer"

fork = multiprocessing.get_context("fork")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def run_mixed(tmp_path, first, second, orders=(0, 2)):
    """`first` in the process of worker "compat", `second` in that of "native", each with its package; "cpp" serves.

    `orders`: their ranks; that of "cpp" is 1. The exit codes of compat, native and cpp.
    """
    store, reports = tmp_path / "store", fork.SimpleQueue()

    def run(name, rank, body):
        torch.set_num_threads(1)
        try:
            if name == "compat":
                from gradwire.compat import rpc as package
            else:
                package = rpc
            package.init_rpc(name, rank=rank, world_size=3, rpc_backend_options=options(store))
            body(package)
            package.shutdown()
            reports.put(None)
        except BaseException:
            reports.put(traceback.format_exc())
            raise

    processes = [
        fork.Process(target=run, args=(name, rank, body))
        for name, rank, body in zip(("compat", "native"), orders, (first, second), strict=True)
    ]
    for process in processes:
        process.start()
    peer = subprocess.Popen([PEER, f"file://{store}", "3"])
    try:
        for process in processes:
            process.join(LIMIT_S)
        codes = [process.exitcode for process in processes] + [peer.wait(LIMIT_S)]
    finally:
        for process in (*processes, peer):
            process.kill()
    faults = []
    while not reports.empty():
        faults.append(reports.get())
    assert not any(faults), "\n".join(filter(None, faults))
    return codes


def nothing(package):
    pass


@pytest.mark.parametrize("orders", [(0, 2), (2, 0)])
def test_m2_they_end_shutdown_together(tmp_path, orders):
    assert run_mixed(tmp_path, nothing, nothing, orders) == [0, 0, 0]


def add(x, y):
    return x + y


@pytest.mark.parametrize("orders", [(0, 2), (2, 0)])
def test_m2_work_of_each_is_waited_for(tmp_path, orders):
    def calls(package):
        for to in ("compat", "native"):
            package.rpc_async(to, add, args=(torch.ones(1000), 1))
        package.rpc_async("cpp", "scale", args=(torch.ones(1000), 2.0))

    assert run_mixed(tmp_path, calls, calls, orders) == [0, 0, 0]


def test_m5_they_gather_with_one_another(tmp_path):
    def first(package):
        assert package.api._all_gather("a", {"compat", "native"}) == {"compat": "a", "native": "b"}
        package.api._barrier(["compat", "native"])
        of_cpp = package.rpc_async("cpp", "gather", args=(7, ["compat", "cpp"]))
        assert package.api._all_gather(3, ["compat", "cpp"]) == of_cpp.wait() == {"compat": 3, "cpp": 7}

    def second(package):
        assert package.all_gather("b", ["native", "compat"]) == {"compat": "a", "native": "b"}
        package.barrier(["native", "compat"])

    assert run_mixed(tmp_path, first, second) == [0, 0, 0]


@pytest.mark.parametrize("victim", ["compat", "native", "cpp"])
@pytest.mark.parametrize("orders", [(0, 2), (2, 0)])
def test_m2_a_killed_one_is_not_waited_for(tmp_path, victim, orders):
    def kills(package):
        own = package.get_worker_info().name
        if own == victim:
            die()
        if own == "compat" or victim == "compat":
            with pytest.raises(RuntimeError):
                package.rpc_sync(victim, "die" if victim == "cpp" else die)

    codes = run_mixed(tmp_path, kills, kills, orders)
    assert codes == [-signal.SIGKILL if name == victim else 0 for name in ("compat", "native", "cpp")]


# A program may put its own wait before the end; the others need not know of it.
@pytest.mark.parametrize("calls_the_original", [True, False])
def test_m2_a_wait_that_a_program_has_replaced(tmp_path, calls_the_original):
    seen = []

    def first(package):
        original = package.api._wait_all_workers

        def wait(timeout):
            seen.append(timeout)
            if calls_the_original:
                original(timeout)

        package.api._wait_all_workers = wait
        package.shutdown()
        assert seen == [0]
        os._exit(0)

    assert run_mixed(tmp_path, first, nothing) == [0, 0, 0]


def test_m2_a_timeout_tells_who_is_missing_whatever_names_it_uses(tmp_path):
    def first(package):
        with pytest.raises(gradwire.Error, match="shutdown timed out waiting for: native") as caught:
            package.shutdown(timeout=0.2)
        assert caught.value.code == "TimedOut"
        os._exit(0)

    def late(package):
        with pytest.raises(gradwire.Error, match=r"'compat' has (left|shut down)"):
            package.barrier(["compat", "native"], timeout=0)  # until that one is gone

    assert run_mixed(tmp_path, first, late) == [0, 0, 0]
