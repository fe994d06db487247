"""RemoteModule: a module that lives on another worker and is called here."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, cast

import torch
from torch.distributed.remote_device import _remote_device
from torch.utils._pytree import tree_map

from gradwire import _device_maps, _pickling, rpc
from gradwire._default import required
from gradwire._functions import shown_as
from gradwire.futures import Future

__all__ = ["RemoteModule"]

# What travels when a RemoteModule is an argument or a result of a call, in this order.
_TRAVELLING = ("on", "device", "is_device_map_set", "is_scriptable", "generated_methods", "module_rref")

_UNSUPPORTED = (  # noqa: SIM905
    "add_module apply bfloat16 buffers children cpu cuda double extra_repr float half ipu load_state_dict modules "
    "named_buffers named_children named_modules named_parameters parameters register_backward_hook register_buffer "
    "register_forward_hook register_forward_pre_hook register_parameter requires_grad_ share_memory state_dict to type "
    "xpu zero_grad"
).split()


class RemoteModule(torch.nn.Module):
    """Makes a module on another worker. `forward` runs there, under distributed autograd as any call.

    Args:
        remote_device: "<worker>/<device>" or "rank:<n>/<device>"; without a device "cpu".
        module_cls: makes the module; found by name on that worker.
        args, kwargs: for `module_cls`.

    Tensors among the arguments of `forward` are moved to the device there. Its results come back to the CPU, unless
    this worker has a device map for that one. What keeps the module from being made is raised by its first use.
    """

    on: str | int
    device: str
    is_device_map_set: bool
    module_rref: rpc.RRef[torch.nn.Module]

    def __init__(
        self,
        remote_device: str,
        module_cls: Callable[..., torch.nn.Module],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        _module_interface_cls: Any = None,
    ) -> None:
        _refuse_interface(_module_interface_cls)
        super().__init__()
        on, device = _parse(remote_device)
        sent = (module_cls, tuple(args or ()), dict(kwargs or {}), device)
        self._set_up(on, device, rpc.remote(on, _create, args=sent))

    def _set_up(self, on: str | int, device: str, module_rref: rpc.RRef[torch.nn.Module]) -> None:
        self.on = on
        self.device = device
        self.is_device_map_set = _has_device_map(on)
        self.is_scriptable = False
        self.generated_methods: tuple[str, ...] = ()
        self.module_rref = module_rref
        self._install()

    def _install(self) -> None:
        self.forward_async = _Forward(self.module_rref, self.device, self.is_device_map_set, is_async=True)
        self.forward = _Forward(self.module_rref, self.device, self.is_device_map_set, is_async=False)

    @staticmethod
    def init_from_module_rref(
        remote_device: str, module_rref: rpc.RRef[torch.nn.Module], _module_interface_cls: Any = None
    ) -> "RemoteModule":
        """A RemoteModule over a module that a reference leads to already. `remote_device` says where that is."""
        _refuse_interface(_module_interface_cls)
        made = RemoteModule.__new__(RemoteModule)
        torch.nn.Module.__init__(made)
        on, device = _parse(remote_device)
        made._set_up(on, device, module_rref)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # One that came in a call has what travels and nothing else of a module: no hooks.
        has_hooks = "_forward_hooks" in self.__dict__
        return super().__call__(*args, **kwargs) if has_hooks else self.forward(*args, **kwargs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(on={self.on!r}, device={self.device!r})"

    def remote_parameters(self, recurse: bool = True) -> list[rpc.RRef[torch.nn.Parameter]]:
        """References to the module's parameters, for a DistributedOptimizer."""
        parameters = rpc.rpc_sync(self.module_rref.owner(), _parameters, args=(self.module_rref, recurse))
        return cast("list[rpc.RRef[torch.nn.Parameter]]", parameters)

    def get_module_rref(self) -> rpc.RRef[torch.nn.Module]:
        """The reference to the module itself."""
        return self.module_rref

    def train(self, mode: bool = True) -> "RemoteModule":
        """As of any module, there."""
        rpc.rpc_sync(self.module_rref.owner(), _train, args=(self.module_rref, mode))
        return self

    def eval(self) -> "RemoteModule":
        return self.train(False)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not _pickling.is_inside_call():
            raise RuntimeError(
                "Cannot pickle RemoteModule in python pickler. RemoteModule can only be pickled when using RPC"
            )
        lost = (
            self.__dict__.keys() - torch.nn.Module().__dict__.keys() - set(_TRAVELLING) - {"forward", "forward_async"}
        )
        if lost:
            names = ", ".join(sorted(lost))
            warnings.warn(f"attributes added to a RemoteModule do not travel with it: {names}", stacklevel=2)
        return _receive, (type(self), tuple(self.__dict__[name] for name in _TRAVELLING))


def _unsupported(name: str) -> Callable[..., NoReturn]:
    instead = " Please use ``remote_parameters`` instead." if "parameters" in name else ""

    def method(self: RemoteModule, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError(f"Method ``{name}`` not supported for RemoteModule.{instead}")

    return method


for _name in _UNSUPPORTED:
    setattr(RemoteModule, _name, _unsupported(_name))


class _Forward:
    """Calls the module on its worker. Travels with the RemoteModule that it is a method of."""

    def __init__(self, rref: rpc.RRef[torch.nn.Module], device: str, has_map: bool, is_async: bool) -> None:
        self.sent = (rref, device, has_map)
        self.is_async = is_async

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        owner = self.sent[0].owner()
        if not self.is_async:
            return rpc.rpc_sync(owner, _run_forward, args=(*self.sent, args, kwargs))
        future: Future[Any] = rpc.rpc_async(owner, _run_forward, args=(*self.sent, args, kwargs))
        return future


def _refuse_interface(interface: Any) -> None:
    if interface is not None:
        raise ValueError("a RemoteModule with a module interface, for TorchScript, is not supported")


def _parse(remote_device: str) -> tuple[str | int, str]:
    parsed = _remote_device(remote_device)
    on = parsed.rank() if parsed.worker_name() is None else parsed.worker_name()
    if on is None:
        raise ValueError(f"{remote_device!r} names no worker: '<worker>/<device>' or 'rank:<n>/<device>' is needed")
    return on, str(parsed.device())


def _has_device_map(on: str | int) -> bool:
    worker = required()
    return bool(_device_maps.between(worker.published(), worker.info().name, worker.find(on).name))


def _receive(cls: type[RemoteModule], state: tuple[Any, ...]) -> RemoteModule:
    made = cls.__new__(cls)
    made.__dict__.update(zip(_TRAVELLING, state, strict=True))
    made._install()
    return made


@shown_as("RemoteModule")
def _create(
    module_cls: Callable[..., torch.nn.Module], args: tuple[Any, ...], kwargs: dict[str, Any], device: str
) -> torch.nn.Module:
    module = module_cls(*args, **kwargs)
    if not isinstance(module, torch.nn.Module):
        raise ValueError(
            "Expect `module_cls(*args, **kwargs)` returns an instance of <class nn.Module>, "
            f"but it returns an instance of {type(module)}"
        )
    return module.to(device)


def _moved(value: Any, device: str) -> Any:
    return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, value)


@shown_as("RemoteModule.forward")
def _run_forward(
    rref: rpc.RRef[torch.nn.Module], device: str, has_map: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    module = rref.local_value()
    if device == "cpu":
        return module(*args, **kwargs)
    result = module(*_moved(args, device), **_moved(kwargs, device))
    return result if has_map else _moved(result, "cpu")


@shown_as("RemoteModule.remote_parameters")
def _parameters(rref: rpc.RRef[torch.nn.Module], recurse: bool) -> list[rpc.RRef[torch.nn.Parameter]]:
    return [rpc.RRef(parameter) for parameter in rref.local_value().parameters(recurse)]


@shown_as("RemoteModule.train")
def _train(rref: rpc.RRef[torch.nn.Module], mode: bool) -> None:
    rref.local_value().train(mode)
