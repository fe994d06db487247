"""What an idle worker costs: no CPU time, few threads, few descriptors."""

import json
import socket

import pytest
from conftest import LIMIT_S

WORLD = 4
PROGRAM = """
    import contextlib, json, os, sys, time
    import torch

    def threads():
        return sorted(open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task"))

    def descriptors():
        found = []
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # the one that listed them
                found.append(os.readlink(f"/proc/self/fd/{fd}"))
        return sorted(found)

    torch.ones(2).requires_grad_().sum().backward()
    before = threads(), descriptors()  # what torch alone has

    from gradwire import autograd, rpc
    rank, where, pause, span = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])

    def double(x):
        return x * 2

    def own(now, before):
        for name in before:
            if name in now:
                now.remove(name)
        return now

    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=4, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
        init_method=where))
    others = [f"worker{other}" for other in range(4) if other != rank]
    for _ in range(100):
        for other in others:
            rpc.rpc_sync(other, double, args=(torch.ones(2),))
    x = torch.ones(2, requires_grad=True)
    with autograd.context() as context_id:
        loss = sum(rpc.rpc_sync(other, double, args=(x,)).sum() for other in others)
        autograd.backward(context_id, [loss])
        assert autograd.get_gradients(context_id)[x].tolist() == [6, 6]
    time.sleep(pause)
    begin = time.process_time()
    time.sleep(span)
    cpu = time.process_time() - begin
    print(json.dumps([cpu, own(threads(), before[0]), own(descriptors(), before[1])]))
    rpc.shutdown()
"""


@pytest.mark.parametrize("scheme", ["file", "tcp"])
def test_an_idle_worker(scripts, tmp_path, scheme):
    """Over TCP rank 0 serves the store as well."""
    where = f"file://{tmp_path}/store"
    pause_s, span_s = 5, 10
    if scheme == "tcp":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            where = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    processes = [scripts.start(PROGRAM, rank, where, pause_s, span_s) for rank in range(WORLD)]
    for rank, process in enumerate(processes):
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, err
        cpu, threads, descriptors = json.loads(out)
        assert cpu < 0.1, f"worker{rank} used {cpu} s of CPU in {span_s} s"
        assert len(threads) <= 8, f"worker{rank}: {threads}"
        assert len(descriptors) <= 20, f"worker{rank}: {descriptors}"
        assert "gradwire-io" in threads
        print(rank, cpu, threads, descriptors)
