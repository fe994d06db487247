"""Put a replacement package where PyTorch's RPC test suite expects torch's own, and see whether it fills the place.

usage: python redirect.py TARGET surface.tsv    (lists the names that TARGET lacks)
"""

import importlib
import sys
from pathlib import Path


def install(target):
    """Redirect the suite to package `target`, by the package's own install(); nothing to do for torch itself."""
    if target == "torch":
        return
    early = [name for name in sys.modules if name.startswith("torch.testing._internal.distributed.rpc")]
    assert not early, f"imported before the redirection: {early}"
    importlib.import_module(target).install()


def leaks():
    """Names in the suite's modules that still come from torch's own RPC."""
    found = []
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal.") and ("distributed" in name or "dist_utils" in name):
            for key, value in vars(module).items():
                home = getattr(value, "__module__", None) or getattr(value, "__name__", "")
                if str(home).startswith(
                    ("torch.distributed.rpc", "torch.distributed.autograd", "torch._C._distributed_rpc")
                ):
                    found.append(f"{name}.{key} <- {home}")
    return found


def missing(target, surface):
    """The names of `surface` (a TSV, see surface.tsv) that `target` lacks."""
    names = [line.split("\t")[1].strip() for line in Path(surface).read_text().splitlines()[1:]]
    absent = []
    for name in names:
        parts, value = name.split("."), None
        for end in range(len(parts), 0, -1):
            try:
                value = importlib.import_module(".".join([target, *parts[:end]]))
                break
            except ModuleNotFoundError:
                continue
        for part in parts[end:]:
            value = getattr(value, part, None)
        if value is None:
            absent.append(name)
    return absent


if __name__ == "__main__":  # python redirect.py TARGET surface.tsv
    print("\n".join(missing(*sys.argv[1:])) or "nothing is missing")
