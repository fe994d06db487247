"""What `python -m gradwire` does: runs a program in the module `__main__`, as python itself would."""

import importlib.machinery
import importlib.util
import io
import os
import runpy
import sys
import zipfile
from typing import Any, NoReturn

from gradwire.compat import install


def _fail(text: str, code: int) -> NoReturn:
    print(f"python -m gradwire: {text}", file=sys.stderr)
    sys.exit(code)


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _run_script(path: str) -> None:
    """In the module that is `__main__` already and stays so: threads and exit functions look names up in it later."""
    path = os.path.abspath(path)
    sys.path[0] = os.path.dirname(path)  # the entry that is there is the folder of this command
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        runpy.run_path(path, run_name="__main__")
        return
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    names: dict[str, Any] = sys.modules["__main__"].__dict__
    builtins = names["__builtins__"]
    names.clear()
    names.update(
        __name__="__main__",
        __doc__=None,
        __package__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        __spec__=None,
        __file__=path,
        __cached__=None,
        __builtins__=builtins,
    )
    exec(code, names)


def main(usage: str) -> None:
    """Runs what the command line names."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        print(usage)
        sys.exit(0 if arguments and arguments[0] != "-m" else 2)
    if arguments[0] != "-m" and not os.path.exists(arguments[0]):
        _fail(f"there is no file {arguments[0]!r}", 2)
    install()
    if arguments[0] == "-m":
        if not _is_module(arguments[1]):
            _fail(f"there is no module {arguments[1]!r}", 1)
        sys.argv = arguments[1:]
        run_as_main: Any = runpy._run_module_as_main  # type: ignore[attr-defined]  # what python -m itself uses
        run_as_main(arguments[1])
        return
    sys.argv = arguments
    _run_script(arguments[0])
