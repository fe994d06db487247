"""Faults given to a worker: what a program sees of calls that fail or are late on purpose."""

import pytest
import torch
from torch.distributed import HashStore

from gradwire import _C, _default, rpc


@pytest.fixture
def alone():
    """Makes a group of one with faults, and ends it."""

    def start(*faults):
        _default.set_worker(
            _C.Worker(
                name="me",
                rank=0,
                world_size=1,
                store=HashStore(),
                rpc_timeout=60.0,
                init_timeout=20.0,
                num_worker_threads=4,
                faults=faults,
            )
        )
        _default.worker.serve()

    yield start
    rpc.shutdown()


def test_a_failed_call_fails_and_the_next_one_works(alone):
    alone(("aten.*", False, 1, 0.0))
    with pytest.raises(RuntimeError, match="a fault was put in"):
        rpc.rpc_sync("me", torch.add, (torch.ones(2), 1))
    assert rpc.rpc_sync("me", torch.add, (torch.ones(2), 1)).tolist() == [2, 2]


@pytest.mark.parametrize("function", [torch.add, max])
def test_a_failed_creation_says_so_at_the_next_use(alone, function):
    alone(("*", True, 1, 0.0))
    reference = rpc.remote("me", function, (torch.ones(1), torch.ones(1)))
    with pytest.raises(RuntimeError, match=f"in the call of '.*{function.__name__}' on worker 'me'"):
        reference.to_here()


def test_a_delayed_call_times_out(alone):
    alone(("py.call", False, 0, 1.0))
    late = r"RPC ran for more than .*in the call of 'max' on worker 'me'"
    with pytest.raises(RuntimeError, match=late):
        rpc.rpc_sync("me", max, (1, 2), timeout=0.1)
    with pytest.raises(RuntimeError, match=late):
        rpc.rpc_async("me", max, (1, 2), timeout=0.1).wait()
    assert rpc.rpc_sync("me", max, (1, 2)) == 2
