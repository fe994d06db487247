"""Puts gradwire where programs and torch itself expect `torch.distributed.rpc` and its neighbours."""

import importlib
import multiprocessing.spawn
import pkgutil
import sys
import warnings
from types import ModuleType
from typing import Any

# torch's module -> ours; both with all their submodules.
_MODULES = {
    "torch.distributed.rpc": "gradwire.compat.rpc",
    "torch.distributed.rpc._utils": "gradwire.compat.rpc._groups",
    "torch.distributed.autograd": "gradwire.compat.autograd",
    "torch.distributed.nn.api.remote_module": "gradwire.compat.nn.remote_module",
}
# Torch's modules of C++, which programs ask for some of the same names -> ours.
_BINDINGS = {
    "torch._C._distributed_rpc": "gradwire.compat.rpc",
    "torch._C._distributed_autograd": "gradwire.compat.autograd",
}

# Names in modules that otherwise stay torch's.
_NAMES = [("torch.distributed.optim.optimizer", "DistributedOptimizer", "gradwire.compat.optim")]

# Registers a back end when it is imported, so only programs that ask for it may; they find it through __path__.
_ON_DEMAND = {"_testing"}


def install() -> None:
    """From now on the names of torch's RPC in this process are gradwire's. Once is enough.

    Modules that imported torch's names before keep them, which a RuntimeWarning tells: call this first, or start with
    `python -m gradwire`.
    Processes that multiprocessing spawns from here on do the same before they import the main module.
    """
    if is_installed():
        return
    for name in ("torch.distributed.nn", "torch.distributed.optim", "torch.jit.annotations"):
        importlib.import_module(name)
    if names := _held_names():
        warnings.warn(
            f"gradwire.install() comes too late for names that have been imported and stay torch's: {', '.join(names)}."
            " Call it before those imports, or start the program with python -m gradwire",
            RuntimeWarning,
            stacklevel=3,
        )
    replaced = _replaced()  # keeps all of it, and with it its ids
    for old, new in _MODULES.items():
        _move(old, importlib.import_module(new))
    for old, new in _BINDINGS.items():
        _put(old, importlib.import_module(new))
    for owner, name, new in _NAMES:
        setattr(sys.modules[owner], name, getattr(importlib.import_module(new), name))
    _replace_in_torch(replaced)
    # What RemoteModule has generated is bound to the module of calls that was there when it was made.
    for name in [name for name in sys.modules if name.startswith("_remote_module_")]:
        del sys.modules[name]
    _install_in_children()


def _held_names() -> list[str]:
    """Globals of the program's modules that are what is about to be replaced. Torch itself imports all of it."""
    replaced = _replaced()
    programs = {id(module): (module_name, module) for module_name, module in reversed(list(sys.modules.items()))}
    return [
        f"{module_name}.{name}"
        for module_name, module in reversed(programs.values())  # in the order of their imports
        if not module_name.startswith(("torch.", "gradwire.", "_remote_module_"))
        for name, value in list(getattr(module, "__dict__", {}).items())
        if id(value) in replaced
    ]


def _replaced() -> dict[int, tuple[Any, str, str]]:
    """By the id of each module that is about to be replaced, and of each function and class in it: the object itself,
    the name of its module, and its name there, which is empty for the module."""
    found = {}
    for owner, name, _ in _NAMES:
        found[id(getattr(sys.modules[owner], name))] = getattr(sys.modules[owner], name), owner, name
    for module_name, module in list(sys.modules.items()):
        if any(f"{module_name}.".startswith(f"{old}.") for old in (*_MODULES, *_BINDINGS)):
            found[id(module)] = module, module_name, ""
            for name, value in list(vars(module).items()):
                if getattr(value, "__module__", None) == module_name:
                    found[id(value)] = value, module_name, name
    return found


def _replace_in_torch(replaced: dict[int, tuple[Any, str, str]]) -> None:
    """Torch's other modules have imported some of it: the front end of TorchScript and DistributedDataParallel the
    classes, sharded tensors the modules."""
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith("torch."):
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if (old := replaced.get(id(value))) is not None:
                new = sys.modules.get(old[1])  # not there: a module that is imported on demand
                setattr(module, name, getattr(new, old[2], value) if old[2] else new or value)


class _Installing:
    """Unpickling this installs."""

    def __reduce__(self) -> tuple[object, ...]:
        return install, ()


def _install_in_children() -> None:
    prepare = multiprocessing.spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {**prepare(name), "gradwire": _Installing()}  # unpickled before the child imports its main module

    multiprocessing.spawn.get_preparation_data = get_preparation_data


def _move(old: str, module: ModuleType) -> None:
    for name in [name for name in sys.modules if name.startswith(old + ".")]:
        del sys.modules[name]  # nothing of torch's stays within reach under the old name
    _put(old, module)
    for sub in pkgutil.iter_modules(getattr(module, "__path__", [])):
        if sub.name not in _ON_DEMAND:
            _put(f"{old}.{sub.name}", importlib.import_module(f"{module.__name__}.{sub.name}"))


def _put(name: str, module: ModuleType) -> None:
    """Makes both `import name` and the attributes along `name` lead to the module."""
    sys.modules[name] = module
    parent, _, leaf = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], leaf, module)


def is_installed() -> bool:
    return sys.modules["torch.distributed.rpc"].__name__ == "gradwire.compat.rpc"
