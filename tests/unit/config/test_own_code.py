"""A user's own code is read and hashed with all that it imports from beside it, and never run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    result = covered(project, text, models__parts="decoder = 1", outer="import parts")
    assert result == {"ring.py", *expected}


@given(st.data())
def test_the_hash_ignores_comments_docstrings_and_layout_alone(data: st.DataObject) -> None:
    lines = ["def f(a, b=1):", "    c = a + b", "    return f'{c!r}'", "class A:", "    x = 1"]
    message = "\n".join(lines)

    def hashed(text: str) -> str:
        return OwnCode("a.py", {"a.py": text.encode()}, {"a.py": "a.py"}).hash

    place = data.draw(st.integers(0, len(lines)))
    comment = data.draw(st.sampled_from(["# c", "", "    # c", "\t"]))
    same = [*lines[:place], comment, *lines[place:]]
    if data.draw(st.booleans()):
        same.insert(same.index("class A:") + 1, '    """A class."""')
        same.insert(0, '"""A module."""')
    assert hashed("\n".join(same)) == hashed(message)
    number = data.draw(st.sampled_from([1, 2, 4]))
    assert hashed(message.replace(lines[number], lines[number] + "; y = 'd'")) != hashed(message)


def test_the_hash_is_of_all_these_files_and_of_nothing_else(project: Path) -> None:
    covered(project, "import parts\n", models__parts="a = 1\n", models__other="a = 1\n")
    first = OwnCode.read("models/ring.py").hash
    hashes = {first}
    for name, text, changes in (
        ("models/other.py", "a = 2\n", False),
        ("models/parts.py", "a = 2\n", True),
        ("models/parts.py", "a = 2  # twice\n", False),
        ("models/ring.py", "import parts\n", True),
    ):
        (project / name).write_text(text)
        result = OwnCode.read("models/ring.py").hash
        assert (result not in hashes) is changes, name
        hashes.add(result)
    # What stands at the end of one file and what stands at the beginning of the next are not the same.
    write(
        project,
        {"models/ring.py": "import parts, bits\n", "models/parts.py": "a = 1\n", "models/bits.py": "b = 1\n"},
    )
    other = OwnCode.read("models/ring.py").hash
    write(project, {"models/parts.py": "", "models/bits.py": "b = 1\na = 1\n"})
    assert OwnCode.read("models/ring.py").hash != other
    # The same text under another name is imported by another one.
    (project / "models/parts.py").rename(project / "models/bits.py")
    (project / "models/ring.py").write_text("import bits\n")
    assert OwnCode.read("models/ring.py").hash not in hashes


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
    ("content", "line"),
    [
        (b"\nclass Ring(:", 2),
        (b"# caf\xe9\nclass Ring(Module): pass", 1),
        (b"import parts", 1),
        (b"# coding: latin-1\n# \xe9\nclass Ring(Module): pass", None),
        ("\ufeffclass Ring(Module):\r\n    pass\r\n".encode(), None),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(
    project: Path, content: bytes, line: int | None
) -> None:
    write(project, {"models/ring.py": "", "models/parts.py": "def f(:\n"})
    (project / "models/ring.py").write_bytes(content)
    if line is None:
        assert OwnCode.read("models/ring.py").hash
    else:
        with pytest.raises(UserError, match=rf"models/\w+.py, line {line}: "):
            OwnCode.read("models/ring.py")
