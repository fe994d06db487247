"""How workers find each other, and what is said when they do not: each case in a process of its own, for its stderr."""

import socket
import subprocess
import sys
import textwrap

import pytest

LIMIT_S = 60
START = """
import os, sys
import gradwire
import gradwire.rpc as rpc

def options(where, **given):
    return rpc.TensorPipeRpcBackendOptions(init_method=where, **{"rpc_timeout": 5, **given})

def refused(call):
    try:
        call()
    except gradwire.Error as error:
        print(error.code, error, sep="|", end="")
"""


@pytest.fixture
def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        number = s.getsockname()[1]
    return number


@pytest.fixture(params=["tcp", "env"])
def where(request, monkeypatch, port):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    return "env://" if request.param == "env" else f"tcp://127.0.0.1:{port}"


def refusal(text):
    """Code and text of the error that the program ends with, which is all that it writes."""
    done = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(text)], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    code, _, message = done.stdout.partition("|")
    return code, message


def test_whom_rank_zero_misses_has_a_name(where):
    code, message = refusal(
        f"refused(lambda: rpc.init_rpc('a', rank=0, world_size=3, rpc_backend_options=options({where!r})))"
    )
    assert code == "TimedOut"
    assert "missing: rank 1, 2" in message


def test_a_store_that_nobody_serves(where, port):
    code, message = refusal(
        f"refused(lambda: rpc.init_rpc('a', rank=1, world_size=2, rpc_backend_options=options({where!r})))"
    )
    assert code == "Unreachable"
    assert f"no store to meet at 127.0.0.1:{port} within 5000 ms: Connection refused" in message


def test_a_folder_that_is_not_there():
    code, message = refusal(
        "refused(lambda: rpc.init_rpc('a', rank=0, world_size=1, rpc_backend_options=options('file:///nope/x')))"
    )
    assert code == "Unreachable"
    assert "'/nope' does not exist" in message


def test_a_host_that_is_none():
    code, message = refusal(
        "refused(lambda: rpc.init_rpc('a', rank=1, world_size=2, "
        "rpc_backend_options=options('tcp://no.such.host.invalid:29500')))"
    )
    assert code == "Unreachable"
    assert "no.such.host.invalid:29500" in message


def test_a_port_that_is_taken(where, port):
    with socket.socket() as s:
        s.bind(("127.0.0.1", port))
        s.listen()
        code, message = refusal(f"""
        late = options({where!r}, rpc_timeout=600)  # which this test does not wait for
        refused(lambda: rpc.init_rpc('a', rank=0, world_size=2, rpc_backend_options=late))
        """)
        assert code == "Unreachable"
        assert f"port {port} of this machine is taken" in message
        assert "within" not in message
        # C1: for its peer that port takes the connection and never says anything.
        code, message = refusal(
            f"refused(lambda: rpc.init_rpc('a', rank=1, world_size=2, rpc_backend_options=options({where!r})))"
        )
        assert code == "Unreachable"
        assert "does not answer as a store" in message


@pytest.mark.parametrize("rank", [2, 3])
def test_a_rank_that_the_group_does_not_have(where, rank):
    code, message = refusal(f"""
    late = options({where!r}, rpc_timeout=600)  # which this test does not wait for: nobody serves the store
    refused(lambda: rpc.init_rpc('a', rank={rank}, world_size=2, rpc_backend_options=late))
    """)
    assert code == "Invalid"
    assert f"rank {rank} is not in 0 .. 1" in message
    assert "world_size 2" in message


# M4
def test_one_port_serves_group_after_group(where):
    assert refusal(f"""
    for turn in range(3):
        rpc.init_rpc('a', rank=0, world_size=1, rpc_backend_options=options({where!r}))
        assert rpc.rpc_sync('a', len, args=('four',)) == 4
        rpc.shutdown()
    """) == ("", "")
