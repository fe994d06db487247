"""The worker's life in its process: start, end, signals, forks, and what is refused."""

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
import torch
from conftest import LIMIT_S, options

from gradwire import Error, rpc

START = """
    import sys, os, time, threading
    import torch
    import gradwire
    from gradwire import autograd, rpc
    rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

    def same(x): return x
    def name(): return rpc.get_worker_info().name
    def block(): threading.Event().wait()
    def held_up(x):
        x.register_hook(lambda gradient: block())
        return x.sum()
    def sleep(seconds): time.sleep(seconds)
    def init(**given):
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            init_method=store if "://" in store else "file://" + store, **given))
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ended(process):
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


def both(scripts, text, store):
    """Exit codes and output of two ranks of one program."""
    processes = [scripts.start(START + text, rank, 2, store) for rank in range(2)]
    return [ended(process) for process in processes]


def until(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def switches(process):
    """How often the main thread has slept and been woken, and whether it sleeps."""
    status = Path(f"/proc/{process.pid}/task/{process.pid}/status").read_text().splitlines()
    return [line for line in status if line.startswith(("State", "voluntary", "nonvoluntary"))]


def until_asleep(process):
    """Until the main thread sleeps, and was not woken between two looks: it waits for something."""
    seen = [None]

    def is_asleep():
        before, seen[0] = seen[0], switches(process)
        return "sleeping" in seen[0][0] and seen[0] == before

    until(is_asleep)


def test_importing_starts_no_thread(scripts):
    code, _, err = scripts.run(
        """
        import os, threading, torch
        before = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
        import gradwire
        assert (len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))) == before
        """
    )
    assert code == 0, err


def test_calls_before_init_and_after_shutdown(tmp_path):
    for _ in range(2):
        for use in (
            lambda: rpc.rpc_sync("me", max, args=(1, 2)),
            lambda: rpc.rpc_async("me", max, args=(1, 2)),
            lambda: rpc.remote("me", max, args=(1, 2)),
            lambda: rpc.RRef(1),
            lambda: rpc.get_worker_info(),
            lambda: rpc.get_rpc_timeout(),
            lambda: rpc.shutdown(),
        ):
            with pytest.raises(Error, match=r"^RPC has not been initialized"):
                use()
        rpc.init_rpc("me", rank=0, world_size=1, rpc_backend_options=options(tmp_path / "store"))
        rpc.shutdown()


# M4
def test_init_again(tmp_path):
    for attempt in range(4):
        name = f"me{attempt // 2}"
        rpc.init_rpc(name, rank=0, world_size=1, rpc_backend_options=options(tmp_path / "store"))
        assert rpc.rpc_sync(name, max, args=(1, attempt)) == max(1, attempt)
        with pytest.raises(Error, match="already initialized"):
            rpc.init_rpc(name, rank=0, world_size=1)
        assert rpc.get_worker_info() == rpc.WorkerInfo(name, 0)
        rpc.shutdown()


def test_both_workers_init_again(scripts, tmp_path):
    text = """
    for attempt in range(3):
        init()
        assert rpc.rpc_sync(f"worker{1 - rank}", name) == f"worker{1 - rank}"
        rpc.shutdown()
    """
    assert [code for code, _, _ in both(scripts, text, tmp_path / "store")] == [0, 0]


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"name": ""}, Error, "must be non-empty"),
        ({"name": "a" * 500}, Error, "shorter than 128"),
        ({"name": "a*"}, Error, "Worker name must match"),
        ({"name": " "}, Error, "Worker name must match"),
        ({"rank": 3}, Error, "rank 3 is not in 0"),
        ({"backend": "TENSORPIPE"}, TypeError, "must be a member of BackendType"),
        ({"rpc_backend_options": {}}, TypeError, "must be an instance of RpcBackendOptions"),
        ({"rpc_backend_options": rpc.RpcBackendOptions()}, TypeError, "Could not infer backend"),
    ],
)
def test_bad_arguments_of_init(tmp_path, given, error, text):
    right = {"name": "me", "rank": 0, "world_size": 1, "rpc_backend_options": options(tmp_path / "store")}
    with pytest.raises(error, match=text):
        rpc.init_rpc(**{**right, **given})


def test_bad_options():
    with pytest.raises(TypeError, match="incompatible constructor arguments"):
        rpc.TensorPipeRpcBackendOptions(rpc_timeout="soon")
    with pytest.raises(ValueError, match="num_worker_threads"):
        rpc.TensorPipeRpcBackendOptions(num_worker_threads=0)
    with pytest.raises(ValueError, match="rpc_timeout"):
        rpc.TensorPipeRpcBackendOptions(rpc_timeout=-1)


def test_worker_infos():
    info = rpc.WorkerInfo("a:b-c_1", 3)
    assert (info.name, info.id) == ("a:b-c_1", 3)
    assert info == rpc.WorkerInfo("a:b-c_1", 3)
    assert info != rpc.WorkerInfo("a:b-c_1", 4)
    assert info != 23
    assert {info: 1}[rpc.WorkerInfo("a:b-c_1", 3)] == 1


def test_a_worker_info_travels(alone):
    assert rpc.rpc_sync("me", rpc.get_worker_info) == rpc.get_worker_info("me")


def test_a_missing_worker_is_named(tmp_path):
    with pytest.raises(Error, match="1") as caught:
        rpc.init_rpc("me", rank=0, world_size=2, rpc_backend_options=options(tmp_path / "store", rpc_timeout=1))
    assert caught.value.code == "TimedOut"


@pytest.mark.parametrize("scheme", ["tcp", "env"])
def test_meeting_in_a_tcp_store(scripts, monkeypatch, scheme):
    port = free_port()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    where = "env://" if scheme == "env" else f"tcp://127.0.0.1:{port}"
    text = """
    init()
    assert rpc.rpc_sync(1 - rank, name) == f"worker{1 - rank}"
    rpc.shutdown()
    """
    assert [code for code, _, _ in both(scripts, text, where)] == [0, 0]


def test_two_workers_with_one_name(scripts, tmp_path):
    text = """
    try:
        rpc.init_rpc("same", rank=rank, world_size=world, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            init_method="file://" + store, rpc_timeout=600))  # which this test does not wait for
    except gradwire.Error as error:
        assert "is not unique" in str(error), error
        assert error.code == "Invalid"
        print("refused")
    """
    for code, out, err in both(scripts, text, tmp_path / "store"):
        assert code == 0, err
        assert out == "refused\n"


def test_an_accelerator_tensor_is_refused(alone):
    with pytest.raises(Error, match="meta"):
        rpc.rpc_sync("me", torch.add, args=(torch.ones(2).to_sparse().to("meta"), 1))


# M3
@pytest.mark.parametrize(
    "end", ["pass", "sys.exit(0)", "os.kill(os.getpid(), 9)", "raise KeyError('end')", "os._exit(0)"]
)
def test_leaving_without_shutdown(scripts, tmp_path, end):
    text = f"""
    init()
    if rank == 1:
        rpc.rpc_sync("worker0", same, args=(1,))
        future = rpc.rpc_async("worker0", sleep, args=(0.5,))
        rref = rpc.remote("worker0", same, args=(2,))
        kept = rpc.RRef(3)
        {end}
    else:
        try:
            rpc.rpc_sync("worker1", block)
        except gradwire.Error as error:
            assert error.code == "Disconnected", error
            assert "worker1" in str(error)
        rpc.shutdown()
    """
    (code0, _, err0), (code1, _, err1) = both(scripts, text, tmp_path / "store")
    assert code1 == {"os.kill(os.getpid(), 9)": -9, "raise KeyError('end')": 1}.get(end, 0), err1
    assert "terminate called" not in err1
    assert "Fatal" not in err1
    assert code0 == 0, err0


# Ctrl-C ends whatever a program waits for.
@pytest.mark.parametrize(
    "wait",
    [
        "rpc.rpc_sync('worker1', block, timeout=0)",
        "rpc.rpc_async('worker1', block, timeout=0).wait()",
        "torch.futures.wait_all([rpc.rpc_async('worker1', block, timeout=0)])",
        "rpc.remote('worker1', block, timeout=0).to_here(timeout=0)",
        "autograd.backward(context_id, [root])",
        "rpc.shutdown()",
    ],
)
def test_an_interrupt_ends_a_wait(scripts, tmp_path, wait):
    text = f"""
    init()
    if rank == 0:
        rpc.rpc_sync("worker1", same, args=(1,))
        context = autograd.context()
        context_id = context.__enter__()
        root = rpc.rpc_sync("worker1", held_up, args=(torch.ones(2, requires_grad=True),))
        print("waiting", flush=True)
        try:
            {wait}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        os._exit(0)
    rpc.rpc_sync("worker0", same, args=(1,))
    print("waiting", flush=True)
    threading.Event().wait()
    """
    processes = [scripts.start(START + text, rank, 2, tmp_path / "store") for rank in range(2)]
    assert processes[0].stdout.readline() == "waiting\n"
    until_asleep(processes[0])
    processes[0].send_signal(signal.SIGINT)
    assert processes[0].stdout.readline() == "interrupted\n"
    processes[0].wait(LIMIT_S)
    processes[1].kill()


def test_an_interrupt_ends_init(scripts, tmp_path):
    text = """
    print("waiting", flush=True)
    try:
        init(rpc_timeout=0)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """
    process = scripts.start(START + text, 0, 2, tmp_path / "store")
    assert process.stdout.readline() == "waiting\n"
    store = tmp_path / "store"
    until(lambda: store.exists() and b"worker/0" in store.read_bytes())  # from then on it waits for the other
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    assert ended(process)[0] == 0


def test_shutdown_with_a_timeout_names_who_is_missing(scripts, tmp_path):
    text = """
    init()
    rpc.rpc_sync(1 - rank, same, args=(1,))
    if rank == 0:
        try:
            rpc.shutdown(timeout=0.5)
        except gradwire.Error as error:
            assert error.code == "TimedOut" and "worker1" in str(error), error
            print("timed out")
    else:
        try:
            rpc.rpc_sync("worker0", block, timeout=0)
        except gradwire.Error as error:
            assert error.code == "Disconnected", error
        rpc.shutdown(graceful=False)
    """
    (code0, out0, err0), (code1, _, err1) = both(scripts, text, tmp_path / "store")
    assert (code0, code1) == (0, 0), err0 + err1
    assert out0 == "timed out\n"


def test_a_forked_child_has_no_worker(alone):
    pid = os.fork()
    if pid == 0:
        try:
            rpc.get_worker_info()
        except Error:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    assert rpc.rpc_sync("me", max, args=(1, 2)) == 2


def own_address():
    """One by which other machines reach this one, if it has any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("198.51.100.1", 9))  # sends nothing
        except OSError:
            return None
        return s.getsockname()[0]


# A worker listens where the others can reach it: the interface that leads to the store, or the one that is named.
@pytest.mark.parametrize("how", ["store", "variable"])
def test_the_interface_that_a_worker_listens_on(scripts, monkeypatch, how):
    where = own_address() if how == "store" else "127.0.0.2"
    if where is None:
        pytest.skip("this machine has a loopback interface only")
    if how == "variable":
        monkeypatch.setenv("GRADWIRE_HOST", where)
    text = """
    init()
    assert rpc.rpc_sync(1 - rank, name) == f"worker{1 - rank}"
    listening = [line.split()[1:4] for line in open("/proc/self/net/tcp").read().splitlines()[1:]]
    print([":".join(local.split(":")[:1]) for local, _, state in listening if state == "0A"])
    rpc.shutdown()
    """
    store = f"tcp://{where if how == 'store' else '127.0.0.1'}:{free_port()}"
    for code, out, err in both(scripts, text, store):
        assert code == 0, err
        assert f"{int.from_bytes(socket.inet_aton(where), 'little'):08X}" in out


def test_an_interface_that_is_not_there(monkeypatch, tmp_path):
    for host, text in (("203.0.113.7", "203.0.113.7"), ("no.such.host.invalid", "host 'no.such.host.invalid'")):
        monkeypatch.setenv("GRADWIRE_HOST", host)
        with pytest.raises(Error, match=text):
            rpc.init_rpc("me", rank=0, world_size=1, rpc_backend_options=options(tmp_path / "store"))


def test_many_threads_may_wait(group):
    def body():
        futures = [rpc.rpc_async("worker1", wait_here) for _ in range(10)]
        got = []
        threads = [threading.Thread(target=lambda f=f: got.append(f.wait())) for f in futures]
        for thread in threads:
            thread.start()
        rpc.rpc_sync("worker1", let_go)
        for thread in threads:
            thread.join()
        assert got == [1] * 10

    group(body)


_go = threading.Event()


def wait_here():
    assert _go.wait(50)
    return 1


def let_go():
    _go.set()


# M3, and M2's limit: a function that never returns holds nobody up.
@pytest.mark.parametrize("how", ["while True: pass", "threading.Event().wait()", "while True: time.sleep(0.001)"])
@pytest.mark.parametrize("end", ["rpc.shutdown(timeout=0.5)", "rpc.shutdown(graceful=False)", "pass"])
def test_a_function_that_never_returns(scripts, tmp_path, how, end):
    text = f"""
    def hang():
        {how}

    init()
    if rank == 1:
        rpc.rpc_async("worker0", hang, timeout=0)
        rpc.rpc_sync("worker0", same, args=(1,))
        rpc.shutdown(graceful=False)
    else:
        try:
            rpc.rpc_sync("worker1", block)
        except gradwire.Error as error:
            assert error.code == "Disconnected", error
        try:
            {end}
        except gradwire.Error as error:
            assert error.code == "TimedOut", error
    """
    (code0, _, err0), (code1, _, err1) = both(scripts, text, tmp_path / "store")
    assert (code0, code1) == (0, 0), err0 + err1


# M3, C1: with the pool full, what the worker has sent to itself does not hold it up, and its own waits end.
@pytest.mark.parametrize("end", ["rpc.shutdown(graceful=False)", "sys.exit(0)"])
def test_a_pool_full_of_functions_that_never_return(scripts, tmp_path, end):
    text = f"""
    def hang():
        while True:
            pass

    init(num_worker_threads=1)
    rpc.rpc_sync("worker0", same, args=(1,))
    rpc.rpc_async("worker0", hang, timeout=0)
    waiting = rpc.rpc_async("worker0", same, args=(1,), timeout=0)
    said = []

    def wait():
        try:
            waiting.wait()
        except Exception as error:
            said.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    {end}
    thread.join(30)
    assert said and said[0].code == "Disconnected", said
    """
    code, _, err = scripts.run(START + text, 0, 1, tmp_path / "store")
    assert code == 0, err


# M2
def test_a_shutdown_that_times_out_names_the_function_that_still_runs(scripts, tmp_path):
    text = """
    init()
    if rank == 0:
        rpc.rpc_async("worker1", sleep, args=(3,))
        try:
            rpc.shutdown(timeout=1)
        except gradwire.Error as error:
            assert error.code == "TimedOut"
            assert "worker1 runs 'sleep' for worker0 since" in str(error), error
            print("told")
    else:
        rpc.shutdown()
    """
    (code0, out, err0), (code1, _, err1) = both(scripts, text, tmp_path / "store")
    assert (code0, out, code1) == (0, "told\n", 0), err0 + err1
