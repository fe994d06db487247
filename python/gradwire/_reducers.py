"""Which parameters a DistributedDataParallel module reduces together: a backward pass lends it all of them."""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

# Parameter -> its module. A module with a static graph shows itself in the first pass alone.
_modules: Any = WeakIdKeyDictionary()


def find_reduced(nodes: list[Any], hooked: list[torch.Tensor]) -> list[tuple[int, list[torch.Tensor]]]:
    """(place among `nodes` of the node that names a module, or -1, the module's parameters), for each module known.

    Args:
        nodes: the backward nodes of a pass that are Python's.
        hooked: leaves of the pass that some module reduces.
    """
    found: list[tuple[int, list[torch.Tensor]]] = []
    seen = set()
    for place, node in enumerate(nodes):
        module_ref = getattr(node, "ddp_weakref", None)
        module = module_ref() if isinstance(module_ref, weakref.ref) else None
        if module is None:
            continue
        seen.add(id(module))
        found.append((place, _parameters(module)))
        for parameter in found[-1][1]:
            _modules[parameter] = module_ref
    for module in _known(hooked):
        if id(module) not in seen:
            seen.add(id(module))
            found.append((-1, _parameters(module)))
    return found


def _parameters(module: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _known(leaves: Iterable[torch.Tensor]) -> Iterable[Any]:
    for leaf in leaves:
        module_ref = _modules.get(leaf)
        module = module_ref() if module_ref is not None else None
        if module is not None:
            yield module
