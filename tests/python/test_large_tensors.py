"""Tensors of up to 1 GiB: they arrive whole, and sending one takes no second copy of it."""

import os
from pathlib import Path

import pytest
import torch

from gradwire import rpc

MIB = 1 << 20


def pattern(mib):
    """Every 8 bytes differ from their neighbours, so a piece that is lost, doubled or moved changes the digest."""
    return torch.arange(mib * MIB // 8) * 2_654_435_761


def digest(tensor):
    """A sum and a weighted sum, exact modulo 2**64; in pieces, so that it takes little memory itself."""
    plain = weighted = 0
    for index, piece in enumerate(tensor.split(1 << 16)):
        weights = torch.arange(1, piece.numel() + 1)
        plain += int(piece.sum())
        weighted += (index + 1) * int((piece * weights).sum())
    return plain % 2**64, weighted % 2**64, tuple(tensor.shape)


def keep(tensor):
    return tensor


def status_kib(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise KeyError(field)


def peak_growth_mib(action):
    """By how much the highest resident memory of this process passes the present one while `action` runs."""
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from here
    before = status_kib("VmRSS")
    action()
    return (status_kib("VmHWM") - before) / 1024


def memory_mib():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0


@pytest.mark.parametrize("mib", [1, 64, 1024])
@pytest.mark.parametrize("how", ["plain", "pickled"])
def test_a_tensor_arrives_right(group, mib, how):
    if memory_mib() < 3 * mib:
        pytest.skip("too little memory")

    def body():
        tensor = pattern(mib)
        value = tensor if how == "plain" else {"tensor": tensor, "with": {1, 2}}
        assert peak_growth_mib(lambda: rpc.rpc_sync("worker1", digest, args=(tensor[:8],))) < 64  # and it is warm
        right = digest(tensor)
        if mib == 64:
            assert peak_growth_mib(tensor.clone) > 60  # what a copy would look like

        def send():
            assert rpc.rpc_sync("worker1", digest_in, args=(value,), timeout=0) == right

        growth = peak_growth_mib(send)
        assert growth < 64, f"the sender's memory grew by {growth:.0f} MiB"

    group(body)


def digest_in(value):
    return digest(value if isinstance(value, torch.Tensor) else value["tensor"])


# The same the other way, where the callee is the sender.
def test_a_result_arrives_right(group):
    mib = 1024
    if memory_mib() < 3 * mib:
        pytest.skip("too little memory")

    def body():
        right = rpc.rpc_sync("worker1", prepare, args=(mib,), timeout=0)
        assert digest(rpc.rpc_sync("worker1", prepared, timeout=0)) == right
        growth = rpc.rpc_sync("worker1", growth_since_prepared)
        assert growth < 64, f"the sender's memory grew by {growth:.0f} MiB"

    group(body)


_prepared = {}


def prepare(mib):
    _prepared["tensor"] = pattern(mib)
    right = digest(_prepared["tensor"])
    Path("/proc/self/clear_refs").write_text("5")
    _prepared["kib"] = status_kib("VmRSS")
    return right


def prepared():
    return _prepared["tensor"]


def growth_since_prepared():
    return (status_kib("VmHWM") - _prepared["kib"]) / 1024


# Several at once, and small calls between them.
def test_large_tensors_from_several_sides(group):
    def body():
        tensors = [pattern(24) + i for i in range(3)]
        futures = [rpc.rpc_async(f"worker{1 + i % 2}", digest, args=(tensor,)) for i, tensor in enumerate(tensors)]
        assert rpc.rpc_sync("worker1", os.getpid) != os.getpid()
        back = rpc.rpc_async("worker1", pattern, args=(24,))
        assert [future.wait() for future in futures] == [digest(tensor) for tensor in tensors]
        assert torch.equal(back.wait(), pattern(24))

    group(body, world_size=3)
