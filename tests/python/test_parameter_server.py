"""The main job (examples/parameter_server.py): who holds what, and that training needs the server's part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

DRIVER = """
import sys
sys.path.insert(0, "examples")
import torch
import parameter_server as example
from gradwire import rpc

torch.set_num_threads(1)
rank = int(sys.argv[1])
names = (example.SERVER, *example.TRAINERS)
options = rpc.TensorPipeRpcBackendOptions(init_method=sys.argv[2])
rpc.init_rpc(names[rank], rank=rank, world_size=3, rpc_backend_options=options)
if rank == 1:
    training = example.Training()
    before = rpc.rpc_sync(example.SERVER, example.parameter_copies, args=(training.body,))
    for _ in range(12):
        list(training.epoch())
    after = rpc.rpc_sync(example.SERVER, example.parameter_copies, args=(training.body,))
    assert len(before) == 6 and all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    shapes = {tuple(p.shape) for p in before}
    for name in example.TRAINERS:
        held = rpc.rpc_sync(name, example.module_parameter_shapes)
        assert held and not shapes & set(held), (name, held)
    trained = training.accuracy()
    rpc.rpc_sync(example.SERVER, example.reset_parameters, args=(training.body,))
    reset = training.accuracy()
    assert trained >= 0.9, trained
    assert reset < 0.5, reset
    print("checked", flush=True)
rpc.shutdown()
"""


def test_trainers_depend_on_the_parameters_that_only_the_server_holds(tmp_path: Path) -> None:
    init = f"file://{tmp_path}/store"
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(rank), init],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        printed = [worker.communicate(timeout=150)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert "checked" in printed[1]
