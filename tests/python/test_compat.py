"""Programs written to torch's names, which do not know of gradwire."""

import subprocess
import sys
import textwrap

import pytest
from conftest import LIMIT_S

# Trains nothing: calls, references, gradients and a remote module, by torch's names alone.
PROGRAM = """
    import sys
    import torch
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc
    import torch.multiprocessing as mp
    from torch.distributed.nn import RemoteModule
    from torch.distributed.optim import DistributedOptimizer
    from torch.distributed.rpc import RRef

    def double(x):
        return 2 * x

    def weight(rref):
        return rref.local_value()

    def leaf():
        return torch.ones(2, requires_grad=True)

    def run(rank, world_size, store):
        torch.set_num_threads(1)
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size,
                     rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method="file://" + store))
        if rank == 0:
            assert rpc.rpc_sync("worker1", double, args=(torch.ones(2),)).sum() == 4
            rref = rpc.remote("worker1", leaf)
            assert isinstance(rref, RRef)
            optimizer = DistributedOptimizer(torch.optim.SGD, [rref], lr=1.0)
            with dist_autograd.context() as context_id:
                loss = rpc.rpc_sync("worker1", weight, args=(rref,)).sum()
                dist_autograd.backward(context_id, [loss])
                optimizer.step(context_id)
            assert torch.equal(rref.to_here(), torch.zeros(2)), rref.to_here()
            module = RemoteModule("worker1/cpu", torch.nn.Linear, args=(2, 3))
            assert module(torch.ones(4, 2)).shape == (4, 3)
            print("calls by", rpc.rpc_sync.__module__, flush=True)
        rpc.shutdown()

    if __name__ == "__main__":
        method, store = sys.argv[1:]
        mp.start_processes(run, args=(2, store), nprocs=2, start_method=method)
"""


def run_program(arguments, tmp_path):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=tmp_path
    )


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_program_runs_unchanged_in_all_its_processes(tmp_path, method):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    ended = run_program(["-m", "gradwire", "program.py", method, str(tmp_path / "store")], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "calls by gradwire" in ended.stdout


def test_a_program_that_installs_by_itself(tmp_path):
    installing = "import gradwire\ngradwire.install()\n" + textwrap.dedent(PROGRAM)
    (tmp_path / "program.py").write_text(installing)
    ended = run_program(["program.py", "spawn", str(tmp_path / "store")], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "calls by gradwire" in ended.stdout


def test_names_that_were_imported_too_early_are_named(tmp_path):
    for imports, late in [
        ("import torch.distributed.rpc as rpc", "__main__.rpc."),
        ("from torch.distributed.rpc import RRef, rpc_sync", "__main__.RRef, __main__.rpc_sync."),
        ("from torch.distributed.optim import DistributedOptimizer as D", "__main__.D."),
        ("import torch\nimport torch.distributed as dist\nimport torch.distributed.optim", None),
    ]:
        ended = run_program(["-c", f"{imports}\nimport gradwire\ngradwire.install()"], tmp_path)
        assert ended.returncode == 0, ended.stderr
        if late:
            assert f"names that have been imported and stay torch's: {late}" in ended.stderr
            assert "RuntimeWarning" in ended.stderr
        else:
            assert "Warning" not in ended.stderr


def test_a_module_as_a_program(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    ended = run_program(["-m", "gradwire", "-m", "program", "spawn", str(tmp_path / "store")], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "calls by gradwire" in ended.stdout


def test_arguments_exit_codes_and_help(tmp_path):
    (tmp_path / "program.py").write_text("import sys\nprint(sys.argv, __name__)\nsys.exit(7)\n")
    ended = run_program(["-m", "gradwire", "program.py", "--flag", "x"], tmp_path)
    assert ended.returncode == 7
    assert ended.stdout.strip() == "['program.py', '--flag', 'x'] __main__"
    assert "usage: python -m gradwire" in run_program(["-m", "gradwire", "--help"], tmp_path).stdout
    assert run_program(["-m", "gradwire"], tmp_path).returncode == 2


def test_a_program_that_is_not_there(tmp_path):
    for arguments, code in ((["nothere.py"], 2), (["-m", "nothere"], 1), (["-m", "no.where"], 1)):
        ended = run_program(["-m", "gradwire", *arguments], tmp_path)
        assert ended.returncode == code
        assert ended.stderr.count("\n") == 1
        assert repr(arguments[-1]) in ended.stderr


def test_importing_gradwire_leaves_torch_alone(tmp_path):
    code = "import gradwire, torch.distributed.rpc as rpc; print(rpc.__name__, rpc.RRef.__module__)"
    ended = run_program(["-c", code], tmp_path)
    assert ended.stdout.strip() == "torch.distributed.rpc torch.distributed.rpc.api", ended.stderr


# M2: a program of three of which one dies, before or after the others are in shutdown.
def test_a_shutdown_does_not_wait_for_the_dead(tmp_path):
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
        import os, signal, sys, threading, time
        import torch.distributed.rpc as rpc
        import torch.multiprocessing as mp

        def die():
            os.kill(os.getpid(), signal.SIGKILL)

        def run(rank, store, when):
            rpc.init_rpc(f"w{rank}", rank=rank, world_size=3,
                         rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method="file://" + store))
            if rank == 0 and when == "first":
                die()
            if rank == 0 and when == "early":
                try:
                    rpc.rpc_sync("w2", die)
                except RuntimeError:
                    pass
            if rank == 2 and when == "late":
                threading.Timer(0.5, die).start()
            if rank == 2 and when == "early":
                signal.pause()
            if rank == 1 and when == "late":
                try:
                    rpc.rpc_sync("w2", time.sleep, args=(30,))
                except RuntimeError:
                    pass
            rpc.shutdown()
            os.write(1, b"over\\n")

        if __name__ == "__main__":
            processes = [mp.get_context("fork").Process(target=run, args=(n, *sys.argv[1:])) for n in range(3)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            print(sorted(process.exitcode for process in processes))
        """)
    )
    for when in ("first", "early", "late"):
        ended = run_program(["-m", "gradwire", "program.py", str(tmp_path / when), when], tmp_path)
        assert ended.stdout == "over\nover\n[-9, 0, 0]\n", ended.stdout + ended.stderr


# Functions that run when the program's text has ended still find its names; its path is absolute, as python makes it.
@pytest.mark.parametrize("name", ["program.py", "program", "-m program"])
def test_main_stays_what_it_is(tmp_path, name):
    text = textwrap.dedent("""
        import atexit, inspect, os, sys, threading
        import torch.distributed.rpc as rpc

        class Thing:
            pass

        def same(x):
            return x

        def later():
            main.join()
            rpc.init_rpc("w", rank=0, world_size=1,
                         rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method="file://" + sys.argv[1]))
            assert isinstance(rpc.rpc_sync("w", same, args=(Thing(),)), Thing)
            rpc.shutdown()
            print(os.path.isabs(__file__), inspect.getsource(same).startswith("def same"), __name__)

        main = threading.current_thread()
        threading.Thread(target=later).start()
    """)
    (tmp_path / ("program" if name == "program" else "program.py")).write_text(text)
    ended = run_program(["-m", "gradwire", *name.split(), str(tmp_path / "store")], tmp_path)
    assert ended.stdout == "True True __main__\n", ended.stdout + ended.stderr
    assert ended.returncode == 0
