"""Runs a program written to `torch.distributed.rpc` on gradwire, unchanged.

usage: python -m gradwire script.py [argument ...]
       python -m gradwire -m module [argument ...]

Processes that the program starts by multiprocessing, spawned or forked, run on gradwire as well.
"""

import importlib.util
import os
import runpy
import sys
from typing import NoReturn

from gradwire.compat import install


def _fail(text: str, code: int) -> NoReturn:
    print(f"python -m gradwire: {text}", file=sys.stderr)
    sys.exit(code)


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        print(__doc__)
        sys.exit(0 if arguments and arguments[0] != "-m" else 2)
    if arguments[0] != "-m" and not os.path.exists(arguments[0]):
        _fail(f"there is no file {arguments[0]!r}", 2)
    install()
    if arguments[0] == "-m":
        if not _is_module(arguments[1]):
            _fail(f"there is no module {arguments[1]!r}", 1)
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = arguments
    # As python does for a script; the entry that is there is the folder of this command.
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
