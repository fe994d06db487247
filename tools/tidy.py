#!/usr/bin/env python3
"""The house rules that a machine can check; `make test` runs it, and prints each fault as file:line: text.

usage: tools/tidy.py [root of the tree]
"""

import ast
import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 500
FUNCTION_LINES = 70
COLUMNS = 120
BANNED_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "manager"}
SKIPPED = {"build", "dist", "__pycache__", ".git"}
# Split, so that this file does not find itself.
LEFTOVERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.}/])/(work|root|home|Users)" r"/\w")
PACKAGE_HOSTS = re.compile(r"\b(py" r"pi\.org|python" r"hosted\.org|download\.py" r"torch\.org|ana" r"conda\.org)\b")
# Tens of seconds of compile time each; and libtorch's own RPC, which gradwire is measured against and never uses.
HEAVY_HEADERS = ("torch/torch.h", "torch/extension.h")
FOREIGN_RPC = ("torch/csrc/distributed/rpc/", "torch/csrc/distributed/autograd/", "tensorpipe/")

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
DOCUMENT = re.compile(r"\b(docs/[\w/]+\.md|[A-Z]+\.md)\b")
INITIALIZER = re.compile(r" {6,}\w+_\(.*\) \{$")
NO_FUNCTION = re.compile(r"\s*((namespace|class|struct|enum|union|extern|template)\b|#|//)|.*= \{$")

Fault = tuple[Path, int, str]


class Tree:
    """The files under a root, their text, and the layer table of ARCHITECTURE.md."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = sorted(self._walk(root))
        self.texts: dict[Path, str] = {}
        for path in self.files:
            with contextlib.suppress(UnicodeDecodeError):  # an image or golden bytes
                self.texts[path] = (root / path).read_text(encoding="utf-8")
        self.layers, self.public = self._layer_table()

    def _walk(self, folder: Path) -> Iterator[Path]:
        for path in folder.iterdir():
            if path.is_symlink() or path.name in SKIPPED:
                continue
            if path.is_dir():
                if not path.name.startswith(".") or path.name == ".ci":
                    yield from self._walk(path)
            else:
                yield path.relative_to(self.root)

    def _layer_table(self) -> tuple[dict[str, set[str]], dict[str, str]]:
        """Layer -> all layers that it may include; public header -> its layer."""
        direct: dict[str, set[str]] = {}
        public: dict[str, str] = {}
        for line in self.texts.get(Path("ARCHITECTURE.md"), "").splitlines():
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if len(cells) < 4 or not (name := re.fullmatch(r"`([\w/]+)`", cells[0])):
                continue
            direct[name[1]] = set(re.findall(r"`([\w/]+)`", cells[1]))
            public.update(dict.fromkeys(re.findall(r"`([\w/]+\.h)`", cells[2]), name[1]))
        allowed = {name: set(below) for name, below in direct.items()}
        for _ in direct:  # a path in the table is no longer than the table
            for below in allowed.values():
                below.update(*(allowed.get(layer, set()) for layer in list(below)))
        return allowed, public

    def lines(self, *suffixes: str) -> Iterator[tuple[Path, int, str]]:
        for path, text in self.texts.items():
            if not suffixes or path.suffix in suffixes:
                for number, line in enumerate(text.splitlines(), 1):
                    yield path, number, line

    def includes(self) -> Iterator[tuple[Path, int, str, bool]]:
        """Each include: file, line, name, whether it is quoted."""
        for path, number, line in self.lines(".cc", ".h"):
            if found := INCLUDE.match(line):
                yield path, number, found[2], found[1] == '"'

    def layer_of(self, path: Path) -> str | None:
        """The layer of a file under src/, or of a public header; None elsewhere."""
        if path.parts[0] == "src":
            folder = path.parent.relative_to("src").as_posix()
            return folder if folder in self.layers else folder.split("/")[0]
        if path.parts[:2] == ("include", "gradwire"):
            return self.public.get(path.relative_to("include/gradwire").as_posix(), "")
        return None


def is_test(path: Path) -> bool:
    return path.stem.endswith("_test") or path.name.startswith("test_") or path.parts[0] in ("tests", "benchmarks")


def layers(tree: Tree) -> Iterator[Fault]:
    """Includes follow the table, which has no cycles and names exactly what is there."""
    table = Path("ARCHITECTURE.md")
    for name, below in tree.layers.items():
        if name in below:
            yield table, 1, f"the layer table has a cycle through {name}"
        folder = Path("src") / name
        if not any(path.is_relative_to(folder) for path in tree.files) and name not in tree.public.values():
            yield table, 1, f"layer {name} has neither a folder nor a public header"
    headers = {path.relative_to("include/gradwire").as_posix() for path in tree.files if path.parts[0] == "include"}
    for name in sorted(tree.public.keys() - headers):
        yield table, 1, f"public header {name} does not exist"
    for path in tree.files:
        if (layer := tree.layer_of(path)) is not None and layer not in tree.layers:
            yield path, 1, "belongs to no layer of the table in ARCHITECTURE.md"
    for path, number, name, quoted in tree.includes():
        yield from ((path, number, fault) for fault in include_faults(tree, path, name, quoted))


def include_faults(tree: Tree, path: Path, name: str, quoted: bool) -> Iterator[str]:
    if name in HEAVY_HEADERS and not is_test(path):
        yield f"{name} takes tens of seconds to compile; include what is used of it"
    if name.startswith(FOREIGN_RPC):
        yield f"{name} belongs to libtorch's own RPC"
    if not quoted:
        return
    target = Path("include") / name if name.startswith("gradwire/") else Path("src") / name
    if path.parts[0] == "include" and target.parts[0] == "src":
        yield f'a public header includes "{name}" of src/'
    if path.parts[0] == "examples" and target.parts[0] == "src":
        yield f'an example includes "{name}", which is not public'
    own, other = tree.layer_of(path), tree.layer_of(target)
    if not own or not other or own == other or other in tree.layers.get(own, set()):
        return
    if not (is_test(path) and other.startswith("transport/")):
        yield f'layer {own} may not include "{name}" of layer {other}'


def headers(tree: Tree) -> Iterator[Fault]:
    """A header stands on its own: guarded, and first in its own .cc file, so that the compiler proves it."""
    for path, text in tree.texts.items():
        if path.suffix == ".h":
            code = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("//")]
            if not code or code[0] != "#pragma once":
                yield path, 1, "a header begins with a comment and #pragma once"
        if path.suffix != ".cc":
            continue
        own = [path.with_suffix(".h"), Path("include/gradwire") / f"{path.stem.removesuffix('_test')}.h"]
        own = [header for header in own if header in tree.texts and path.parts[0] == "src"]
        names = ["/".join(header.parts[1:]) for header in own]
        included = [found[2] for line in text.splitlines() if (found := INCLUDE.match(line))]
        if any(name in included for name in names) and included[0] not in names:
            yield path, 1, f"includes its own header first, not {included[0]}"


def sizes(tree: Tree) -> Iterator[Fault]:
    for path, text in tree.texts.items():
        if path.suffix not in (".cc", ".h", ".py"):
            continue
        lines = text.splitlines()
        if len(lines) > FILE_LINES:
            yield path, 1, f"{len(lines)} lines; a file past {FILE_LINES} is split"
        functions = python_functions(text) if path.suffix == ".py" else cpp_functions(lines)
        for begin, end in functions:
            if end - begin + 1 > FUNCTION_LINES:
                yield path, begin, f"a function of {end - begin + 1} lines; at most {FUNCTION_LINES}"
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS:
                yield path, number, f"{len(line)} columns; at most {COLUMNS}"
            if line != line.rstrip() or "\t" in line:
                yield path, number, "a tab, or a space at the end of the line"


def python_functions(text: str) -> Iterator[tuple[int, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.end_lineno or node.lineno


def cpp_functions(lines: list[str]) -> Iterator[tuple[int, int]]:
    """By the layout that clang-format gives: a line that opens a brace, and the brace that closes at its indent."""
    begin, indent = 0, ""
    for number, line in enumerate(lines, 1):
        if begin and line.startswith(indent + "}"):
            yield begin, number
            begin = 0
        elif not begin and line.endswith("{") and not NO_FUNCTION.match(line):
            begin, indent = number, line[: len(line) - len(line.lstrip())]
            if indent and line.lstrip().startswith(":"):  # the initializers of a constructor
                indent = indent[4:]
            elif INITIALIZER.match(line):  # the last of several lines of them
                indent = indent[6:]


def names(tree: Tree) -> Iterator[Fault]:
    for path in tree.files:
        words = {word for part in path.with_suffix("").parts for word in part.lower().split("_")}
        if banned := words & BANNED_NAMES:
            yield path, 1, f'"{min(banned)}" is not a name: say what it is about'


def dead_files(tree: Tree) -> Iterator[Fault]:
    """Each .cc is named by the nearest CMakeLists.txt above it, each header is included by another file."""
    included = set()
    for path, _, name, _ in tree.includes():
        included |= {(folder / name, path) for folder in (path.parent, Path("src"), Path("include"), Path("tests"))}
    for path in tree.files:
        if path.suffix == ".h" and not any(target == path and user != path for target, user in included):
            yield path, 1, "no file includes this header"
        if path.suffix == ".cc":
            lists = [parent / "CMakeLists.txt" for parent in path.parents if parent / "CMakeLists.txt" in tree.texts]
            name = path.relative_to(lists[0].parent).as_posix() if lists else path.name
            if not lists or not re.search(rf"(?<![\w/]){re.escape(name)}\b", tree.texts[lists[0]]):
                yield path, 1, "named in no CMakeLists.txt"


def leftovers(tree: Tree) -> Iterator[Fault]:
    for path, number, line in tree.lines():
        if found := LEFTOVERS.search(line):
            yield path, number, f"left over: {found[0]}"
        if found := MACHINE_PATHS.search(line):
            yield path, number, f"a path of one machine: {found[0]}"
        if found := PACKAGE_HOSTS.search(line):
            yield path, number, f"names a package host ({found[0]}); pip's own configuration decides"


def documents(tree: Tree) -> Iterator[Fault]:
    """One title per document, and no mention of a document that is not there."""
    for path, text in tree.texts.items():
        if path.suffix == ".md":
            prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
            if len(re.findall(r"^# \S", prose, flags=re.MULTILINE)) != 1 or not text.startswith("# "):
                yield path, 1, "a document begins with its title and has no other"
    for path, number, line in tree.lines(".md", ".cc", ".h", ".py", ".pyi"):
        for found in DOCUMENT.findall(line):
            if not is_test(path) and not any((tree.root / base / found).exists() for base in ("", path.parent)):
                yield path, number, f"there is no document {found}"


RULES = (layers, headers, sizes, names, dead_files, leftovers, documents)


def check(root: Path) -> list[Fault]:
    tree = Tree(root)
    return sorted(fault for rule in RULES for fault in rule(tree))


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check(root)
    for path, line, text in faults:
        print(f"{path}:{line}: {text}")
    print(f"tidy: {len(faults)} faults" if faults else "tidy: clean")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
