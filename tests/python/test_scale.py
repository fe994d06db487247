"""Many workers on one machine, and many calls of one worker."""

import json
import multiprocessing
import os
import resource
import time

import pytest
import torch
from conftest import options

from gradwire import rpc

WORKERS = 64
CALLS = 100_000


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _resident_kib() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def _table_sizes():
    """Of this worker, but for the call that asks."""
    counts = rpc._default.worker.counts()
    counts.pop("serving_calls")
    return counts


def _call_everybody(rank, store, reports):
    torch.set_num_threads(1)
    begin = time.monotonic()
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=WORKERS, rpc_backend_options=options(store))
    futures = {
        to: rpc.rpc_async(f"w{to}", torch.add, args=(torch.full((2,), rank), to)) for to in range(WORKERS) if to != rank
    }
    wrong = [to for to, future in futures.items() if future.wait().tolist() != [rank + to] * 2]
    rpc.shutdown()
    reports.put((rank, begin, time.monotonic(), wrong, _peak_mib()))


def test_sixty_four_workers_call_each_other(tmp_path, record_property):
    """All 4,032 ordered pairs, from the first init_rpc to the last return of shutdown."""
    fork = multiprocessing.get_context("fork")
    reports = fork.Queue()
    processes = [
        fork.Process(target=_call_everybody, args=(rank, tmp_path / "store", reports)) for rank in range(WORKERS)
    ]
    for process in processes:
        process.start()
    try:
        found = [reports.get(timeout=100) for _ in processes]
    finally:
        for process in processes:
            process.join(10)
            process.kill()
    assert [process.exitcode for process in processes] == [0] * WORKERS
    assert [wrong for _, _, _, wrong, _ in found if wrong] == []
    seconds = max(end for _, _, end, _, _ in found) - min(begin for _, begin, _, _, _ in found)
    peak = max(peak for *_, peak in found)
    print(f"{WORKERS} workers: {seconds:.1f} s, at most {peak:.0f} MiB resident in one")
    assert seconds < 60


MEMORY_PROGRAM = """
    import gc, json, sys, torch
    from gradwire import rpc
    sys.path.insert(0, sys.argv[4])
    from test_scale import CALLS, _resident_kib, _table_sizes

    rank, store, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.set_num_threads(1)
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=2,
                 rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}"))
    if rank == 0:
        tensor = torch.ones(16)
        if kind == "calls":
            def step():
                futures = [rpc.rpc_async("w1", torch.add, args=(tensor, 1)) for _ in range(100)]
                for future in futures:
                    future.wait()
        else:
            def step():
                references = [rpc.remote("w1", torch.add, args=(tensor, 1)) for _ in range(100)]
                references[-1].to_here()
        def sizes():
            gc.collect()
            return [_resident_kib(), rpc.rpc_sync("w1", _resident_kib)]
        for done in range(CALLS // 100):
            if done == CALLS // 500:
                early = sizes()
            step()
        late = sizes()
        # What was dropped before this call has been counted before it (O1).
        tables = [rpc.rpc_sync("w1", _table_sizes), _table_sizes()]
        print(json.dumps([early, late, tables]))
    rpc.shutdown()
"""


@pytest.mark.parametrize("kind", ["calls", "references"])
def test_memory_does_not_grow(scripts, tmp_path, kind):
    """Both sides' memory after all calls is within 5 % of that after a fifth of them, and their tables are empty."""
    folder = os.path.dirname(__file__)
    ranks = [scripts.start(MEMORY_PROGRAM, rank, tmp_path / "store", kind, folder) for rank in range(2)]
    outputs = [process.communicate(timeout=240) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], outputs
    early, late, tables = json.loads(outputs[0][0])
    print(f"{kind}: resident KiB {early} after a fifth, {late} at the end")
    for before, after in zip(early, late, strict=True):
        assert after < before * 1.05
    assert [name for counts in tables for name, count in counts.items() if count != 0] == []
