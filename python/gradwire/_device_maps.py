"""Device maps as workers publish them to each other, and what is wrong with those of a group."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

Maps = Mapping[str, Mapping[torch.device, torch.device]]


def publish(maps: Maps, devices: Sequence[torch.device]) -> str:
    """What the others need to know of this worker's devices; nothing when it has and names none."""
    count = torch.cuda.device_count()
    if not count and not maps and not devices:
        return ""
    pairs = {to: [[str(source), str(target)] for source, target in one.items()] for to, one in maps.items()}
    return json.dumps({"count": count, "maps": pairs, "devices": [str(device) for device in devices]})


def check(published: Mapping[str, str], names_may_be_unknown: bool = False) -> None:
    """Checks the maps of a group, given what each worker has published, by name in the order of ranks.

    All workers look at the same and come to the same end: ValueError for the first fault.
    """
    known: dict[str, Any] = {
        name: json.loads(text) if text else {"count": 0, "maps": {}} for name, text in published.items()
    }
    for name, own in known.items():
        strangers = sorted(own["maps"].keys() - known.keys())
        if strangers and not names_may_be_unknown:
            raise ValueError(f"Node {name} has invalid target node names in its device maps: {', '.join(strangers)}")
        for to, pairs in own["maps"].items():
            sources = [torch.device(source) for source, _ in pairs]
            targets = [torch.device(target) for _, target in pairs]
            where = f"in its device map for {to}"
            named = [torch.device(device) for device in own.get("devices", [])]
            if bad := _beyond(sources, own["count"]):
                raise ValueError(f"Node {name} has source devices with invalid indices {where}: {_list(bad)}")
            if named and (bad := [device for device in sources if device.type != "cpu" and device not in named]):
                raise ValueError(f"Node {name} has unexpected source devices {where}: {_list(bad)}")
            if to in known and (bad := _beyond(targets, known[to]["count"])):
                raise ValueError(f"Node {name} has target devices with invalid indices {where}: {_list(bad)}")
            if len(set(targets)) < len(targets):
                raise ValueError(f"Node {name} has duplicated target devices {where}: {_list(targets)}")


def between(published: Mapping[str, str], source: str, target: str) -> dict[torch.device, torch.device]:
    """The map that one worker has set for another."""
    text = published.get(source, "")
    pairs = json.loads(text)["maps"].get(target, []) if text else []
    return {torch.device(there): torch.device(here) for there, here in pairs}


def _beyond(devices: Sequence[torch.device], count: int) -> list[torch.device]:
    return [device for device in devices if device.type == "cuda" and (device.index or 0) >= count]


def _list(devices: Sequence[torch.device]) -> str:
    return ", ".join(map(str, devices))
