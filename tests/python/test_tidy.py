"""tools/tidy.py finds each kind of fault, and none in a tree without one."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("tidy", Path(__file__).parents[2] / "tools" / "tidy.py")
assert SPEC is not None
assert SPEC.loader is not None
tidy = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tidy)

HEADER = "// What it is about.\n#pragma once\n"
CLEAN = {
    "ARCHITECTURE.md": (
        "# Map\n\n| layer | may include | public headers | holds |\n| --- | --- | --- | --- |\n"
        "| `base` | | `error.h` | x |\n| `wire` | `base` | | x |\n| `transport` | `wire` | | x |\n"
        "| `transport/tcp` | `transport` | | x |\n| `rpc` | `transport` | | x |\n"
    ),
    "include/gradwire/error.h": HEADER,
    "src/base/CMakeLists.txt": "gradwire_layer(base SOURCES error.cc)\n",
    "src/base/error.cc": '#include "gradwire/error.h"\n\n#include <string>\n',
    "src/wire/CMakeLists.txt": "gradwire_layer(wire SOURCES frame.cc TESTS frame_test.cc)\n",
    "src/wire/frame.h": HEADER + '#include "gradwire/error.h"\n',
    "src/wire/frame.cc": '#include "wire/frame.h"\n',
    "src/wire/frame_test.cc": '#include "wire/frame.h"\n',
    "src/transport/CMakeLists.txt": "gradwire_layer(transport SOURCES tcp/tcp.cc)\n",
    "src/transport/tcp/tcp.h": HEADER + '#include "wire/frame.h"\n',
    "src/transport/tcp/tcp.cc": '#include "transport/tcp/tcp.h"\n',
    "src/rpc/CMakeLists.txt": "gradwire_layer(rpc SOURCES rpc.cc TESTS rpc_test.cc)\n",
    "src/rpc/rpc.cc": '#include "wire/frame.h"\n',
    "src/rpc/rpc_test.cc": '#include "transport/tcp/tcp.h"\n',
}


def plant(root: Path, files: dict[str, str]) -> list[str]:
    for name, text in (CLEAN | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [f"{path}: {text}" for path, _, text in tidy.check(root)]


def test_a_clean_tree_has_no_fault(tmp_path: Path) -> None:
    assert plant(tmp_path, {}) == []


# What is planted (names that tidy.py itself looks for are split), and the one fault that it makes.
FAULTS = {
    "upward include": ("src/wire/frame.cc", '#include "wire/frame.h"\n#include "rpc/x.h"\n', "layer wire may not"),
    "concrete transport": ("src/rpc/rpc.cc", '#include "transport/tcp/tcp.h"\n', "layer rpc may not include"),
    "public header looks inside": (
        "include/gradwire/error.h",
        HEADER + '#include "base/x.h"\n',
        "a public header includes",
    ),
    "folder without a layer": ("src/new/CMakeLists.txt", "\n", "belongs to no layer"),
    "layer without a folder": (
        "ARCHITECTURE.md",
        CLEAN["ARCHITECTURE.md"] + "| `gone` | `rpc` | | x |\n",
        "layer gone has neither",
    ),
    "cycle": (
        "ARCHITECTURE.md",
        CLEAN["ARCHITECTURE.md"].replace("| `base` | |", "| `base` | `base` |"),
        "the layer table has a cycle through base",
    ),
    "public header that is gone": (
        "ARCHITECTURE.md",
        CLEAN["ARCHITECTURE.md"].replace("`error.h`", "`error.h` `gone.h`"),
        "public header gone.h does not exist",
    ),
    "all of torch": ("src/rpc/rpc.cc", "#include <torch/torch.h>\n", "tens of seconds"),
    "libtorch's own RPC": ("src/rpc/rpc.cc", "#include <torch/csrc/distributed/rpc/rref.h>\n", "libtorch's own RPC"),
    "unguarded header": ("src/wire/frame.h", "// Frame.\nstruct Frame;\n", "#pragma once"),
    "own header second": ("src/wire/frame.cc", '#include <string>\n#include "wire/frame.h"\n', "own header first"),
    "long file": ("tools/x.py", "x = 1\n" * 501, "a file past 500 is split"),
    "long Python function": ("tools/x.py", "def f():\n" + "    x = 1\n" * 70, "a function of 71 lines"),
    "long C++ function": ("src/rpc/rpc.cc", "void F() {\n" + "  G();\n" * 70 + "}\n", "a function of 72 lines"),
    "long method": (
        "src/rpc/rpc.cc",
        "class C {\n  void F() {\n" + "    G();\n" * 70 + "  }\n};\n",
        "a function of 72 lines",
    ),
    "wide line": ("src/rpc/rpc.cc", "//" + "x" * 119 + "\n", "121 columns"),
    "space at the end": ("src/rpc/rpc.cc", "int x; \n", "a space at the end"),
    "name that says nothing": ("tools/string_utils.py", "", '"utils" is not a name'),
    "source that is not built": ("src/rpc/dead.cc", "\n", "named in no CMakeLists.txt"),
    "test that is not run": ("src/rpc/dead_test.cc", "\n", "named in no CMakeLists.txt"),
    "header that nobody includes": ("src/rpc/dead.h", HEADER, "no file includes this header"),
    "note to self": ("src/rpc/rpc.cc", "// TO" + "DO: more\n", "left over"),
    "path of a machine": ("tools/x.sh", "cd /ro" + "ot/x\n", "a path of one machine"),
    "package host": ("tools/x.sh", "curl https://py" + "pi.org/simple\n", "names a package host"),
    "second title": ("docs/x.md", "# One\n\n# Two\n", "has no other"),
    "no title": ("docs/x.md", "Text.\n", "begins with its title"),
    "missing document": ("src/rpc/rpc.cc", "// docs/none.md\n", "there is no document docs/none.md"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, name: str) -> None:
    path, text, expected = FAULTS[name]
    found = plant(tmp_path, {path: text})
    assert len(found) == 1, found
    assert found[0].startswith(path)
    assert expected in found[0]


def test_an_example_may_only_include_the_public_interface(tmp_path: Path) -> None:
    example = {"examples/CMakeLists.txt": "add_executable(x x.cc)\n", "examples/x.cc": '#include "wire/frame.h"\n'}
    assert plant(tmp_path, example) == ['examples/x.cc: an example includes "wire/frame.h", which is not public']


def test_a_public_header_belongs_to_a_layer(tmp_path: Path) -> None:
    found = plant(tmp_path, {"include/gradwire/new.h": HEADER, "src/rpc/rpc.cc": '#include "gradwire/new.h"\n'})
    assert found == ["include/gradwire/new.h: belongs to no layer of the table in ARCHITECTURE.md"]


def test_a_title_inside_a_code_block_is_none(tmp_path: Path) -> None:
    assert plant(tmp_path, {"docs/x.md": "# One\n\n```\n# a comment\n```\n"}) == []
