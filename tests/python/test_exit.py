"""Programs that end while functions which they serve are inside operators of torch, or while their threads make calls
(M3): they end with their own exit code, whatever runs."""

import pytest

START = """
    import os
    import sys
    import threading
    import torch
    import gradwire
    from gradwire import rpc

    torch.set_num_threads(1)
    rank, world_size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    inside = threading.Semaphore(0)
    matrix = torch.rand(300, 300)

    def product():  # gives the lock of the interpreter away for a while
        matrix.mm(matrix)

    def small():  # for moments, again and again
        matrix[0].add(1)

    def busy(name):
        inside.release()
        while True:
            globals()[name]()

    def init():
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}")
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size, rpc_backend_options=options)
"""

ENDS = {
    "return": ("pass", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "exception": ("raise KeyError('end')", 1),
    "hard": ("rpc.shutdown(graceful=False)", 0),
    "timeout": ("gradwire.rpc.shutdown(timeout=0.1)", 1),
}


@pytest.mark.parametrize("name", ["product", "small"])
@pytest.mark.parametrize("end", ENDS)
def test_served_functions_inside_operators(scripts, tmp_path, end, name):
    statement, code = ENDS[end]
    text = f"""
    init()
    if rank == 0:
        futures = [rpc.rpc_async("worker1", busy, args=({name!r},), timeout=0) for _ in range(3)]
        for future in futures:
            try:
                future.wait()
            except gradwire.Error as error:
                assert error.code == "Disconnected", error
        rpc.shutdown(graceful=False)
    else:
        for _ in range(3):
            inside.acquire()
        {statement}
    """
    processes = [scripts.start(START + text, rank, 2, tmp_path / "store") for rank in range(2)]
    (_, err0), (_, err1) = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, code], err0 + err1


@pytest.mark.parametrize("function", ["abs, args=(torch.ones(3),)", "torch.add, args=(matrix, 1)", "abs, args=(-3,)"])
@pytest.mark.parametrize("call", ["rpc.rpc_sync", "wait_async"])
def test_daemon_threads_that_make_calls(scripts, tmp_path, call, function):
    text = f"""
    def wait_async(*args, **kwargs):
        rpc.rpc_async(*args, **kwargs).wait()

    def forever():
        {call}("worker0", {function})
        inside.release()
        while True:
            {call}("worker0", {function})

    init()
    if rank == 0:
        threading.Event().wait()
    else:
        for _ in range(3):
            threading.Thread(target=forever, daemon=True).start()
        for _ in range(3):
            inside.acquire()
    """
    server = scripts.start(START + text, 0, 2, tmp_path / "store")
    client = scripts.start(START + text, 1, 2, tmp_path / "store")
    _, err = client.communicate()
    assert client.returncode == 0, err
    server.kill()
