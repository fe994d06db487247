"""Roles never wait (O2): what a worker has to do for others goes on while Python's lock is held."""

import os

START = """
    import ctypes
    import os
    import signal
    import sys
    import threading
    import numpy
    import torch
    import gradwire
    from gradwire import rpc

    rank, store, pipe = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    CALLS = 8
    received = threading.Semaphore(0)

    def take(array):
        received.release()

    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}")
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
"""

# Sockets are full of memory that numpy owns. Then nobody gets Python's lock here, and the other side reads on.
HOLDER = """
    other = rpc.rpc_sync("worker1", os.getpid)
    received.acquire()
    os.kill(other, signal.SIGSTOP)
    for _ in range(CALLS):
        rpc.rpc_async("worker1", take, args=(torch.from_numpy(numpy.ones(1_000_000)),), timeout=0)
    keeps_the_lock = ctypes.PyDLL(None)
    said = ctypes.create_string_buffer(1)
    file = os.open(pipe, os.O_RDWR)
    keeps_the_lock.kill(other, signal.SIGCONT)
    assert keeps_the_lock.read(file, said, 1) == 1
    print(said.raw.decode())
    rpc.shutdown()
"""

# Needs nothing of Python's there: the socket is written, read, and an operator runs.
CALLER = """
    rpc.rpc_sync("worker0", torch.add, args=(torch.ones(2), 1))
    rpc.rpc_async("worker0", take, args=(None,))
    file = os.open(pipe, os.O_WRONLY)
    served = all(received.acquire(timeout=20) for _ in range(CALLS))
    try:
        for _ in range(20):
            assert rpc.rpc_sync("worker0", torch.add, args=(torch.ones(2), 1), timeout=20)[0] == 2
        os.write(file, b"y" if served else b"r")
    except gradwire.Error:
        os.write(file, b"n")
    rpc.shutdown()
"""


def test_a_worker_serves_operators_while_the_lock_is_held(scripts, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    holder = scripts.start(START + HOLDER, 0, tmp_path / "store", pipe)
    caller = scripts.start(START + CALLER, 1, tmp_path / "store", pipe)
    out, err = holder.communicate()
    _, caller_err = caller.communicate()
    assert (out, holder.returncode, caller.returncode) == ("y\n", 0, 0), err + caller_err
