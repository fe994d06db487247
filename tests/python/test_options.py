"""Options of init_rpc, device maps, and back ends by name."""

import enum

import pytest
import torch

from gradwire import _device_maps, backends, rpc
from gradwire.backends import register_backend


def test_defaults_and_setters():
    options = rpc.TensorPipeRpcBackendOptions()
    assert (options.num_worker_threads, options.rpc_timeout, options.init_method) == (16, 60.0, "env://")
    assert (options.device_maps, options.devices, options._transports, options._channels) == ({}, [], None, None)
    options.rpc_timeout = 0.5
    options.init_method = "tcp://localhost:1"
    assert (options.rpc_timeout, options.init_method) == (0.5, "tcp://localhost:1")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"num_worker_threads": 0}, ValueError),
        ({"rpc_timeout": -1.0}, ValueError),
        ({"rpc_timeout": "1"}, TypeError),
        ({"init_method": 1}, TypeError),
        ({"_transports": ["smoke"]}, ValueError),
        ({"_channels": ["smoke"]}, ValueError),
        ({"devices": ["cpu"]}, ValueError),
        ({"device_maps": {"worker1": {0: -1}}}, RuntimeError),
    ],
)
def test_refused(given, error):
    with pytest.raises(error):
        rpc.TensorPipeRpcBackendOptions(**given)


def test_device_maps_add_up_and_stay_one_to_one():
    options = rpc.TensorPipeRpcBackendOptions(device_maps={"worker1": {0: 1}}, devices=[0, "cuda:1"])
    options.set_device_map("worker1", {1: 0})
    options.set_device_map("worker2", {"cpu": "cpu"})
    cuda0, cuda1, cpu = torch.device("cuda:0"), torch.device("cuda:1"), torch.device("cpu")
    assert options.device_maps == {"worker1": {cuda0: cuda1, cuda1: cuda0}, "worker2": {cpu: cpu}}
    assert options.devices == [cuda0, cuda1]
    for clash in ({0: 2}, {2: 1}):
        with pytest.raises(ValueError, match="`set_device_map` only supports 1-to-1 mapping"):
            options.set_device_map("worker1", clash)
    assert options.device_maps["worker1"] == {cuda0: cuda1, cuda1: cuda0}


def published(maps, devices=(), count=2, monkeypatch=None):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    options = rpc.TensorPipeRpcBackendOptions(device_maps=maps, devices=devices)
    return _device_maps.publish(options.device_maps, options.devices)


@pytest.mark.parametrize(
    ("maps", "devices", "fault"),
    [
        ({"nobody": {0: 1}}, (), "Node b has invalid target node names in its device maps"),
        ({"a": {5: 0}}, (), "Node b has source devices with invalid indices in its device map for a"),
        ({"a": {0: 5}}, (), "Node b has target devices with invalid indices in its device map for a"),
        ({"a": {0: 1}}, (1,), "Node b has unexpected source devices in its device map for a"),
    ],
)
def test_all_workers_find_the_first_fault_of_the_group(monkeypatch, maps, devices, fault):
    group = {
        "a": published({"b": {0: 1}}, monkeypatch=monkeypatch),
        "b": published(maps, devices, monkeypatch=monkeypatch),
        "c": "",
    }
    with pytest.raises(ValueError, match=fault):
        _device_maps.check(group)


def test_a_good_group_and_what_lies_between_two_workers(monkeypatch):
    group = {"a": published({"b": {0: 1}}, [0], monkeypatch=monkeypatch), "b": published({}, monkeypatch=monkeypatch)}
    _device_maps.check(group)
    assert _device_maps.between(group, "a", "b") == {torch.device("cuda:0"): torch.device("cuda:1")}
    assert _device_maps.between(group, "b", "a") == {}


def test_a_group_with_a_faulty_map_does_not_start(tmp_path):
    given = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path / 'store'}")
    given.set_device_map("nobody", {"cpu": "cpu"})
    with pytest.raises(ValueError, match="Node worker0 has invalid target node names"):
        rpc.init_rpc("worker0", rank=0, world_size=1, rpc_backend_options=given)
    assert rpc._default.worker is None


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(backends, "_handlers", dict(backends._handlers))
    yield
    monkeypatch.undo()
    backends._rebuild()


class OwnOptions(rpc.RpcBackendOptions):
    def __init__(self, rpc_timeout=60.0, init_method="env://", threads=1):
        super().__init__(rpc_timeout, init_method)
        self.threads = threads


def start_own(store, name, rank, world_size, rpc_backend_options):
    inner = rpc.TensorPipeRpcBackendOptions(num_worker_threads=rpc_backend_options.threads, rpc_timeout=7.0)
    return rpc.init_backend(
        rpc.BackendType.TENSORPIPE,
        store=store,
        name=name,
        rank=rank,
        world_size=world_size,
        rpc_backend_options=inner,
    )


@pytest.mark.usefixtures("registry")
def test_a_users_back_end_carries_calls(tmp_path):
    own = register_backend("OWN", OwnOptions, start_own)
    assert rpc.backend_registered("OWN")
    assert own is rpc.BackendType.OWN
    assert {member.name for member in rpc.BackendType} == {"TENSORPIPE", "OWN"}
    for given in (own, None):  # None: found by the type of the options
        store = tmp_path / f"store{given}"
        chosen = rpc.construct_rpc_backend_options(own, init_method=f"file://{store}", threads=3)
        assert (type(chosen), chosen.threads) == (OwnOptions, 3)
        rpc.init_rpc("worker0", backend=given, rank=0, world_size=1, rpc_backend_options=chosen)
        assert rpc.get_rpc_timeout() == 7.0
        assert rpc.rpc_sync("worker0", torch.add, args=(1, 2)) == 3
        rpc.shutdown()


@pytest.mark.usefixtures("registry")
def test_a_back_end_is_registered_once():
    register_backend("OWN", OwnOptions, start_own)
    with pytest.raises(RuntimeError, match=r"^RPC backend OWN: already registered$"):
        register_backend("OWN", OwnOptions, start_own)


class Colour(enum.Enum):
    RED = 1


def test_wrong_types_are_refused_before_anybody_is_met():
    with pytest.raises(TypeError, match="Argument backend must be a member of BackendType"):
        rpc.init_rpc("worker0", backend=Colour.RED, rank=0, world_size=2)
    with pytest.raises(TypeError, match="must be an instance of RpcBackendOptions"):
        rpc.init_rpc("worker0", rank=0, world_size=2, rpc_backend_options={})
    with pytest.raises(TypeError, match="Could not infer backend for options"):
        rpc.init_rpc("worker0", rank=0, world_size=2, rpc_backend_options=OwnOptions())
    with pytest.raises(ValueError, match="world_size must be at least 1"):
        rpc.init_rpc(
            "worker0",
            rank=0,
            world_size=0,
            rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method="file:///tmp/gradwire_never_there"),
        )


class MoreOptions(rpc.TensorPipeRpcBackendOptions):
    """A program's own, with the same back end."""


def test_options_of_a_subclass_find_their_back_end(tmp_path):
    given = MoreOptions(init_method=f"file://{tmp_path / 'store'}")
    assert backends.choose(None, given) == (rpc.BackendType.TENSORPIPE, given)


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_default_timeout_is_a_number_of_seconds(tmp_path, seconds):
    given = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path / 'store'}")
    rpc.init_rpc("worker0", rank=0, world_size=1, rpc_backend_options=given)
    with pytest.raises(ValueError, match="at least 0 seconds"):
        rpc._set_rpc_timeout(seconds)
    assert rpc.get_rpc_timeout() == 60.0
    rpc.shutdown()
