"""The options of init_rpc."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch

from gradwire import _C
from gradwire._C import RpcBackendOptions

__all__ = ["RpcBackendOptions", "TensorPipeRpcBackendOptions"]

DeviceLike: TypeAlias = int | str | torch.device

# Names that programs choose transports and channels by. All of them are carried over TCP between processes.
_TRANSPORTS = {"tcp", "uv", "shm", "ibv"}
_CHANNELS = {"basic", "cma", "mpt_uv", "xth", "cuda_basic", "cuda_gdr", "cuda_ipc", "cuda_xth"}


def _device(device: DeviceLike) -> torch.device:
    if not isinstance(device, int):
        return torch.device(device)
    if device < 0:
        raise RuntimeError(f"Device index must not be negative, but {device} is")
    # torch.device(index) would refuse on a machine without accelerators, where maps can be written all the same.
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device("cuda" if kind is None else kind.type, device)


def _check_names(kind: str, names: list[str] | None, known: set[str]) -> None:
    for name in names or []:
        if name not in known:
            raise ValueError(f"there is no {kind} {name!r}; the names are {', '.join(sorted(known))}")


def _joined(
    to: str, known: Mapping[torch.device, torch.device], added: Mapping[DeviceLike, DeviceLike]
) -> dict[torch.device, torch.device]:
    joined = dict(known)
    for source, target in ((_device(source), _device(target)) for source, target in added.items()):
        if joined.get(source, target) != target:
            raise ValueError(
                f"`set_device_map` only supports 1-to-1 mapping, but {source} would go to {joined[source]} and to "
                f"{target} of {to!r}"
            )
        twins = [other for other, mapped in joined.items() if mapped == target and other != source]
        if twins:
            raise ValueError(
                f"`set_device_map` only supports 1-to-1 mapping, but {twins[0]} and {source} would both go to "
                f"{target} of {to!r}"
            )
        joined[source] = target
    return joined


class TensorPipeRpcBackendOptions(_C.TransportOptions):
    """Options of the back end TENSORPIPE.

    Args:
        num_worker_threads: how many functions run at one time for others; those that wait are not counted.
        rpc_timeout: the default timeout of calls in seconds; 0 is none.
        init_method: where the workers meet: `env://`, `tcp://host:port`, `file://path`.
        heartbeat_limit: seconds of silence after which a worker is suspected, and the group decides whether it is lost.
        device_maps: see `set_device_map`, by the name of the worker.
        devices: see `set_devices`.
        _transports, _channels: names of those that may be used; None is all.
    """

    def __init__(
        self,
        *,
        num_worker_threads: int = 16,
        rpc_timeout: float = 60.0,
        init_method: str = "env://",
        device_maps: Mapping[str, Mapping[DeviceLike, DeviceLike]] | None = None,
        devices: Sequence[DeviceLike] | None = None,
        heartbeat_limit: float = 10.0,
        _transports: list[str] | None = None,
        _channels: list[str] | None = None,
    ) -> None:
        super().__init__(
            num_worker_threads=num_worker_threads,
            _transports=_transports,
            _channels=_channels,
            rpc_timeout=rpc_timeout,
            init_method=init_method,
        )
        if not heartbeat_limit >= 0.1:
            raise ValueError(f"heartbeat_limit must be at least 0.1 s, not {heartbeat_limit!r}")
        self.heartbeat_limit = heartbeat_limit
        _check_names("transport", _transports, _TRANSPORTS)
        _check_names("channel", _channels, _CHANNELS)
        for to, device_map in (device_maps or {}).items():
            self.set_device_map(to, device_map)
        if devices is not None:
            self.set_devices(devices)

    def faults(self) -> list[tuple[str, bool | None, int, float]]:
        """What goes wrong on purpose; tests have options of their own."""
        return []

    def set_device_map(self, to: str, device_map: Mapping[DeviceLike, DeviceLike]) -> None:
        """Where tensors of this worker arrive on another: source device here -> target device there.

        Adds to what is set for that worker; each device may have one partner. Checked against the devices that there
        are by init_rpc, on all workers. Replies take the map backwards. CPU tensors need no entry.
        """
        maps = self.device_maps
        maps[to] = _joined(to, maps.get(to, {}), device_map)
        self.device_maps = maps

    def set_devices(self, devices: Sequence[DeviceLike]) -> None:
        """The accelerator devices of this worker that calls may use. Without it, those that the device maps name."""
        found = [_device(device) for device in devices]
        for device in found:
            if device.type == "cpu":
                raise ValueError(f"`set_devices` expects a list of accelerator devices, but got {device}")
        self.devices = found
