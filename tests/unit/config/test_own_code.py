"""A user's own code is read and hashed with all that it imports from beside it, and never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ketscale.config import OwnCode
from ketscale.errors import UserError
from tests.own_models import write

RAISES = "raise RuntimeError('it was run')\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def covered(project: Path, text: str, **files: str) -> set[str]:
    """The names of the files that belong to models/ring.py with this text, beside these files."""
    others = {name.replace("__", "/") + ".py": content for name, content in files.items()}
    write(project, {"models/ring.py": RAISES + text, **others})
    return set(OwnCode.read("models/ring.py").sources)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch, random, os.path", set()),
        ("import parts", {"parts.py"}),
        ("from parts import *", {"parts.py"}),
        ("def build():\n    try:\n        import parts\n    except ImportError:\n        pass", {"parts.py"}),
        # A package, and its modules, also from the working directory and without an __init__.py.
        ("import kit.gates", {"kit/__init__.py", "kit/gates.py", "kit/angles.py"}),
        ("from kit import gates", {"kit/__init__.py", "kit/gates.py", "kit/angles.py"}),
        ("from kit import size", {"kit/__init__.py"}),
        ("from models import parts", {"models/parts.py"}),
        ("import models.parts as p", {"models/parts.py"}),
        ("from .parts import decoder", {"parts.py"}),
        ("from . import parts", {"parts.py"}),
        ("from .signal import x", {"signal.py"}),
        ("import signal", set()),
        # What it imports imports others.
        ("import outer", {"outer.py", "parts.py"}),
        # No files of Python: a folder of data that has the name of a package.
        ("import datasets", set()),
    ],
)
def test_what_a_file_imports_from_beside_it_is_found(project: Path, text: str, expected: set[str]) -> None:
    (project / "datasets").mkdir()
    (project / "datasets" / "a.csv").write_text("1,2")
    write(
        project,
        {
            "models/kit/__init__.py": RAISES + "size = 2",
            "models/kit/gates.py": RAISES + "from .angles import angle",
            "models/kit/angles.py": RAISES + "angle = 1",
            "models/random.py": RAISES,
            "models/signal.py": RAISES,
        },
    )
    found = covered(project, text, models__parts="decoder = 1", outer="import parts")
    assert found == {"ring.py", *expected}


def test_the_hash_is_of_all_these_files_and_of_nothing_else(project: Path) -> None:
    covered(project, "import parts\n", models__parts="a = 1\n", models__other="a = 1\n")
    first = OwnCode.read("models/ring.py").hash
    seen = {first}
    for name, text, changes in (
        ("models/other.py", "a = 2\n", False),
        ("models/parts.py", "a = 2\n", True),
        ("models/parts.py", "a = 2  # twice\n", True),
        ("models/ring.py", "import parts\n", True),
    ):
        (project / name).write_text(text)
        found = OwnCode.read("models/ring.py").hash
        assert (found not in seen) is changes, name
        seen.add(found)
    # What stands at the end of one file and what stands at the beginning of the next are not the same.
    write(
        project,
        {"models/ring.py": "import parts, bits\n", "models/parts.py": "a = 1\n", "models/bits.py": "b = 1\n"},
    )
    apart = OwnCode.read("models/ring.py").hash
    write(project, {"models/parts.py": "", "models/bits.py": "b = 1\na = 1\n"})
    assert OwnCode.read("models/ring.py").hash != apart
    # The same text under another name is imported by another one.
    (project / "models/parts.py").rename(project / "models/bits.py")
    (project / "models/ring.py").write_text("import bits\n")
    assert OwnCode.read("models/ring.py").hash not in seen


def test_a_copy_has_the_same_hash(project: Path) -> None:
    covered(project, "import parts\nclass Ring: pass\n", models__parts="a = 1\n")
    code = OwnCode.read("models/ring.py")
    Path("copy.zip").write_bytes(code.packed())
    copy = OwnCode.unpacked(Path("copy.zip"), "models/ring.py")
    assert (copy.sources, copy.hash) == (code.sources, code.hash)
    Path("copy.zip").write_bytes(code.packed()[:-30])
    with pytest.raises(UserError, match=r"copy.zip: cannot be read .*; train the run again"):
        OwnCode.unpacked(Path("copy.zip"), "models/ring.py")


@pytest.mark.parametrize(
    ("text", "names", "required"),
    [
        ("class Ring(Module):\n    pass", (), ()),
        ("class Ring(nn.Module):\n    def __init__(self, a, b=1, *, c, d=2): pass", ("a", "b", "c", "d"), ("a", "c")),
        ("class Base(nn.Module):\n    def __init__(self, a): pass\nclass Ring(Base): pass", ("a",), ("a",)),
        ("from parts import Base\nclass Ring(Base): pass", ("a", "b"), ("a",)),
        ("class Ring(Module):\n    pass\nclass Ring(ketscale.Fitted):\n    def __init__(self, c): pass", ("c",), ("c",)),
        ("from parts import Base as Ring", ("a", "b"), ("a",)),
        ("def Ring(a, b=3): pass", ("a", "b"), ("a",)),
    ],
)  # fmt: skip
def test_what_a_constructor_takes_is_read(
    project: Path, text: str, names: tuple[str, ...], required: tuple[str, ...]
) -> None:
    base = "class Base(nn.Module):\n    def __init__(self, a, b=2): pass"
    covered(project, text, models__parts=base)
    code = OwnCode.read("models/ring.py")
    assert code.arguments("Ring") == (names, required, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Rings(nn.Module): pass", "models/ring.py: has no Ring; did you mean Rings"),
        ("class Ring(pennylane.Thing): pass", "Ring has its constructor from elsewhere; give it an __init__"),
        ("class Ring(:", "models/ring.py, line 2: invalid syntax"),
        ("import parts", "models/parts.py, line 1: "),
        ("class Ring(Ring): pass", "models/ring.py: Ring is defined by itself"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(project: Path, text: str, said: str) -> None:
    write(project, {"models/ring.py": f"{RAISES}{text}", "models/parts.py": "def f(:\n"})
    with pytest.raises(UserError, match=said):
        OwnCode.read("models/ring.py").arguments("Ring")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"# caf\xe9\nclass Ring(Module): pass", "models/ring.py, line 1: invalid or missing encoding"),
        (b"# coding: latin-1\n# \xe9\nclass Ring(Module): pass", ""),
        ("\ufeffclass Ring(Module):\r\n    pass\r\n".encode(), ""),
    ],
)
def test_a_file_has_any_encoding_that_it_names(project: Path, content: bytes, said: str) -> None:
    write(project, {"models/ring.py": ""})
    (project / "models/ring.py").write_bytes(content)
    if said:
        with pytest.raises(UserError, match=said):
            OwnCode.read("models/ring.py")
    else:
        assert OwnCode.read("models/ring.py").arguments("Ring").names == ()
