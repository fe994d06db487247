"""Groups of workers for the tests: each in a process of its own, joined in bounded time."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from pathlib import Path

import pytest
import torch

from gradwire import rpc

LIMIT_S = 60

# What a shell starts in the background ignores interrupts, and so would the programs that the tests interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def options(store: Path, **given) -> rpc.TensorPipeRpcBackendOptions:
    return rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}", **given)


def _run_rank(connection, body, rank, world_size, store, given):
    torch.set_num_threads(1)
    try:
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size, rpc_backend_options=options(store, **given))
        if rank == 0:
            body()
        if rpc._default.worker is not None:
            rpc.shutdown()
        connection.send(None)
    except BaseException:
        connection.send(traceback.format_exc())
        rpc_worker = rpc._default.worker
        if rpc_worker is not None:
            rpc.shutdown(graceful=False)


def run_group(body, world_size, store, **given):
    """Runs `body` on worker0 of a new group of forked processes; the others serve. Raises what went wrong anywhere."""
    fork = multiprocessing.get_context("fork")
    ranks = []
    for rank in range(world_size):
        ours, theirs = fork.Pipe()
        process = fork.Process(target=_run_rank, args=(theirs, body, rank, world_size, store, given))
        process.start()
        theirs.close()
        ranks.append((process, ours))
    end = time.monotonic() + LIMIT_S
    faults = []
    for rank, (process, connection) in enumerate(ranks):
        process.join(max(0.1, end - time.monotonic()))
        if process.exitcode is None:
            faults.append(f"worker{rank} did not end")
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            continue
        try:
            report = connection.recv() if connection.poll() else f"exit code {process.exitcode}"
        except EOFError:
            report = f"exit code {process.exitcode}"
        if report is not None:
            faults.append(f"worker{rank}: {report}")
        elif process.exitcode != 0:
            faults.append(f"worker{rank}: exit code {process.exitcode}")
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)


@pytest.fixture
def group(tmp_path):
    """group(body, world_size=2, **options): see run_group()."""

    def run(body, world_size=2, **given):
        run_group(body, world_size, tmp_path / "store", **given)

    return run


@pytest.fixture
def alone(tmp_path):
    """This very process as a group of one."""
    rpc.init_rpc("me", rank=0, world_size=1, rpc_backend_options=options(tmp_path / "store"))
    yield
    if rpc._default.worker is not None:
        rpc.shutdown()


class Scripts:
    """Programs as users run them, in new interpreters."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.processes = []
        self.limits = []

    def start(self, text, *arguments, prefix=(), **environment):
        """`prefix`: of the command; `environment`: what the program finds there besides."""
        path = self.folder / f"program{len(self.processes)}.py"
        path.write_text(textwrap.dedent(text))
        process = subprocess.Popen(
            [*prefix, sys.executable, path, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        self.processes.append(process)
        # A test that waits for what the program prints fails by this, instead of never.
        limit = threading.Timer(2 * LIMIT_S, process.kill)
        limit.daemon = True
        limit.start()
        self.limits.append(limit)
        return process

    def run(self, text, *arguments):
        process = self.start(text, *arguments)
        out, err = process.communicate(timeout=LIMIT_S)
        return process.returncode, out, err


@pytest.fixture
def scripts(tmp_path):
    made = Scripts(tmp_path)
    yield made
    for limit in made.limits:
        limit.cancel()
    for process in made.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()
