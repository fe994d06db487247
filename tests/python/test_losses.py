"""Losses of live and dead processes (M1): who waits for a frozen or killed worker is told, and so is the frozen one."""

import signal
import time

import pytest
from conftest import LIMIT_S
from test_process import START, ended

# All call each other all the time, and each waits for something that does not come.
PROGRAM = (
    START
    + """
    from gradwire import Error
    victim, last = int(sys.argv[4]), sys.argv[5]
    release = threading.Event()

    def hold():
        release.wait()

    def load():
        x = torch.ones(1000)
        try:
            while not release.is_set():
                for other in others:
                    rpc.rpc_sync(other, same, args=(x,))
        except Error:
            pass

    def failure(call):
        try:
            call()
        except Error as error:
            return str(error)
        return "no error"

    init(heartbeat_limit=2.0)
    others = [f"worker{other}" for other in range(world) if other != rank]
    busy = threading.Thread(target=load)
    busy.start()
    waiting = rpc.rpc_async(others[0] if rank == victim else f"worker{victim}", hold, timeout=0)
    print("ready", flush=True)
    print(failure(waiting.wait), flush=True)
    release.set()
    busy.join()
    if rank == victim:
        print(failure(lambda: rpc.rpc_sync(others[0], same, args=(1,))), flush=True)
    else:
        sys.stdin.readline()
        for other in others:
            if other != f"worker{victim}":
                assert rpc.rpc_sync(other, same, args=(2,)) == 2
    rpc.shutdown()
    store, rank, world = last + str(rank), 0, 1
    init()
    print(rpc.rpc_sync("worker0", same, args=("again",)), flush=True)
    rpc.shutdown()
"""
)


def start(scripts, tmp_path, world, victim):
    processes = [
        scripts.start(PROGRAM, rank, world, tmp_path / "store", victim, tmp_path / "again") for rank in range(world)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
    return processes


def check_told(processes, victim, reason):
    for rank, process in enumerate(processes):
        if rank != victim:
            text = process.stdout.readline()
            assert reason in text, text


def check_end(processes, victim):
    for rank, process in enumerate(processes):
        if rank != victim:
            process.stdin.write("go on\n")
            process.stdin.flush()
    for rank, process in enumerate(processes):
        if rank != victim:
            assert ended(process) == (0, "again\n", ""), rank


@pytest.mark.parametrize(("world", "victim"), [(2, 0), (2, 1), (3, 1)])
def test_a_frozen_worker_is_lost_and_learns_it(scripts, tmp_path, world, victim):
    processes = start(scripts, tmp_path, world, victim)
    frozen = processes[victim]
    frozen.send_signal(signal.SIGSTOP)
    lost = f"worker 'worker{victim}' was declared lost by the group in epoch 2 (silent for "
    check_told(processes, victim, lost)
    frozen.send_signal(signal.SIGCONT)
    out, err = frozen.communicate(timeout=LIMIT_S)
    lines = out.splitlines()
    assert len(lines) == 3, (out, err)
    assert lost in lines[0], lines
    assert lost in lines[1], lines
    assert lines[2] == "again"
    assert frozen.returncode == 0, err
    check_end(processes, victim)


@pytest.mark.parametrize(("world", "victim"), [(2, 1), (3, 0)])
def test_a_killed_worker_is_lost(scripts, tmp_path, world, victim):
    processes = start(scripts, tmp_path, world, victim)
    processes[victim].kill()
    check_told(processes, victim, f"worker{victim}")
    check_end(processes, victim)


def test_a_short_freeze_loses_nobody(scripts, tmp_path):
    text = (
        START
        + """
    init(heartbeat_limit=4.0)
    print("ready", flush=True)
    if rank == 0:
        sys.stdin.readline()
    rpc.shutdown()
    """
    )
    processes = [scripts.start(text, rank, 3, tmp_path / "store") for rank in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
    for process in processes[1:]:
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        process.send_signal(signal.SIGCONT)
    for process in processes:
        assert ended(process) == (0, "", "")
