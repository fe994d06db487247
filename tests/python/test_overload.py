"""More work than processors (M1): whoever is slow is not lost.

`GRADWIRE_OVERLOAD_S=120 pytest -s` does it for so long, and prints how late answers came.
"""

import multiprocessing
import os
import threading
import time
import traceback

import torch
from conftest import LIMIT_S, options

from gradwire import rpc

WORKERS = 16
SECONDS = float(os.environ.get("GRADWIRE_OVERLOAD_S", "3"))
STRESS = 4  # processes that compute beside them


def same(x):
    return x


def compute(until):
    x = torch.rand(300, 300)
    while time.monotonic() < until:
        x = (x @ x).tanh()


def stress(until):
    while time.monotonic() < until:
        sum(range(10_000))


def work(rank, store, reports):
    try:
        torch.set_num_threads(2)
        rpc.init_rpc(f"w{rank}", rank=rank, world_size=WORKERS, rpc_backend_options=options(store))
        rpc.barrier()
        until = time.monotonic() + SECONDS
        computing = [threading.Thread(target=compute, args=(until,)) for _ in range(2)]
        for thread in computing:
            thread.start()
        slowest, calls = 0.0, 0
        while time.monotonic() < until:
            begin = time.monotonic()
            other = f"w{(rank + 1 + calls % (WORKERS - 1)) % WORKERS}"
            rpc.rpc_sync(other, same, args=(torch.ones(1000),), timeout=0)
            slowest = max(slowest, time.monotonic() - begin)
            calls += 1
        for thread in computing:
            thread.join()
        everybody = sorted(rpc.all_gather(rank, timeout=0).values())
        rpc.shutdown()
        reports.put((rank, everybody == list(range(WORKERS)), calls, slowest))
    except BaseException:
        reports.put((rank, traceback.format_exc(), 0, 0.0))


def test_nobody_is_lost_for_want_of_processors(tmp_path):
    fork = multiprocessing.get_context("fork")
    reports = fork.Queue()
    processes = [fork.Process(target=work, args=(rank, tmp_path / "store", reports)) for rank in range(WORKERS)]
    processes += [fork.Process(target=stress, args=(time.monotonic() + SECONDS,)) for _ in range(STRESS)]
    for process in processes:
        process.start()
    try:
        found = [reports.get(timeout=SECONDS + 2 * LIMIT_S) for _ in range(WORKERS)]
    finally:
        for process in processes:
            process.join(LIMIT_S)
            process.kill()
    assert [went for _, went, _, _ in sorted(found)] == [True] * WORKERS
    calls = sum(calls for _, _, calls, _ in found)
    slowest = max(slowest for _, _, _, slowest in found)
    print(f"{WORKERS} workers computed for {SECONDS:.0f} s: {calls} calls, the slowest took {slowest:.2f} s")
