"""The README's first example does what it says."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
WORKER1 = "import gradwire.rpc as rpc\nrpc.init_rpc('worker1', rank=1, world_size=2)\nrpc.shutdown()"


def start(program: str, port: int) -> subprocess.Popen:
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)


def test_python_example():
    if not README.exists():
        pytest.skip("not in the source tree")
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    processes = [start(example, port), start(WORKER1, port)]
    try:
        printed, _ = processes[0].communicate(timeout=60)
        assert [process.wait(60) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    assert printed.splitlines() == [
        "tensor([4., 4.])",
        "tensor([[1., 1.],",
        "        [1., 1.]]) worker1 tensor([0., 0.])",
    ]
