"""Which files and variables of the environment a user's own model reads: `ketscale try` compares them with its `reads`.

Python tells of every `open` (its audit events), but neither of libraries that open files in C, as h5py and safetensors do,
nor of variables: `os.environ` is made to tell of those.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from ketscale.config import FileModel
from ketscale.errors import OWN, UserError

# Folders without data of a user.
_SYSTEM = tuple(map(Path, ("/proc", "/sys", "/dev")))
_ALL = "$*"


class _Watch:
    """The files and variables that the user's code has read and written so far; `read` is None while nobody watches."""

    read: set[str] | None = None
    written: set[str]


@contextlib.contextmanager
def watched() -> Iterator[set[str]]:
    """Inside the block the set gets what the user's code reads: the paths of files, and variables as $NAME.

    So it does of files of Python that it imports from below the working directory by other means than the statements that
    `OwnCode` follows.
    """
    _listen()
    before = set(sys.modules)
    kind = type(os.environ)
    found = set[str]()
    _Watch.read, _Watch.written = found, set()
    os.environ.__class__ = _Environment
    try:
        yield found
    finally:
        os.environ.__class__ = kind
        _Watch.read = None
        for name in sys.modules.keys() - before:
            path = Path(os.path.realpath(getattr(sys.modules[name], "__file__", None) or "/"))
            foreign = path.is_relative_to(Path.cwd()) and not any(map(path.is_relative_to, _folders()))
            if foreign and path.is_file() and not name.startswith(OWN):
                found.add(str(path))


def check(names: set[str], name: str, model: FileModel) -> None:
    """Check that the settings of a model have the content of what it reads.

    names: as `watched` gives them. name: the model's in the config.

    Raises:
        UserError: they lack some; says what to add to the config.
    """
    known = {
        each if each.startswith("$") else os.path.realpath(Path(each).expanduser()) for each in model.reads
    }
    new = sorted(_shown(each) for each in names - known)
    if _ALL in new:
        raise UserError(
            f"{model.file}: {model.class_} reads the whole environment (os.environ), which differs from job to job; read its "
            "variables by their names"
        )
    if new:
        line = ", ".join(
            each if re.fullmatch(r"[\w./~$-]+", each) else json.dumps(each) for each in (*model.reads, *new)
        )
        raise UserError(
            f"{model.file}: {model.class_} reads {' and '.join(new)}, of which the settings do not have the content, so that "
            f"a change would go unnoticed: add `reads: [{line}]` to models.{name}"
        )


class _Environment(type(os.environ)):  # type: ignore[misc]  # it has no public name
    """The environment, which tells who reads it."""

    def __getitem__(self, key: str) -> str:
        _note(f"${key}")
        return super().__getitem__(key)

    def __setitem__(self, key: str, value: str) -> None:
        # A value that the code sets is in its own text.
        _Watch.written.add(f"${key}")
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: str) -> str:
        """As of any mapping; it reads only what is there."""
        if os.fsencode(key) not in os.environb:
            self[key] = default
        return self[key]

    def __iter__(self) -> Iterator[str]:
        _note(_ALL)
        return super().__iter__()


_LOOKS_UP = ("os", "collections.abc", "_collections_abc")
# Packages that open files of their own, such as a cache of compiled code.
_COMPILERS = ("torch._dynamo", "torch._inductor", "triton.", "numba.", "jax.")
_OTHERS = ("ketscale.", "importlib._", "linecache", *_COMPILERS)


def _note(variable: str) -> None:
    """Note a variable that the user's code itself reads; what others look up for it is theirs, as HOME is."""
    frame: FrameType | None = sys._getframe(2)
    while frame and (frame.f_globals.get("__name__") in _LOOKS_UP or frame.f_code.co_name == "expandvars"):
        frame = frame.f_back
    if variable in _Watch.written:
        return
    if _Watch.read is not None and frame and str(frame.f_globals.get("__name__")).startswith(OWN):
        _Watch.read.add(variable)


@functools.cache
def _listen() -> None:
    """Begin to hear of every `open`: nothing ends that, so it is done once."""
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or _Watch.read is None or isinstance(arguments[0], int) or not _asked():
        return
    path, flags = Path(os.path.realpath(os.fsdecode(arguments[0]))), arguments[2]
    if flags & (os.O_TRUNC | os.O_EXCL):
        _Watch.written.add(str(path))
    if flags & os.O_WRONLY or str(path) in _Watch.written:
        return
    # A file that is missing beside the config would count once it is there.
    there = path.is_file() or (path.is_relative_to(Path.cwd()) and not path.exists())
    if there and not any(map(path.is_relative_to, _folders())):
        _Watch.read.add(str(path))


def _asked() -> bool:
    """Whether the user's code leads to a call, and not by way of KetScale, an import, a compiler or a line that is shown."""
    frame: FrameType | None = sys._getframe(2)
    while frame:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith((OWN, *_OTHERS)):
            return name.startswith(OWN)
        frame = frame.f_back
    return False


@functools.cache
def _folders() -> tuple[Path, ...]:
    """The folders in which nothing is a user's, although they may be below a folder of a user's."""
    package, python = str(Path(__file__).parents[1]), sysconfig.get_paths().values()
    places = (package, sys.prefix, sys.base_prefix, site.getusersitepackages(), *python)
    return *_SYSTEM, *(Path(place).resolve() for place in places)


def _shown(name: str) -> str:
    """A path as a config has it: relative to the working directory if it is below."""
    return os.path.relpath(name) if Path(name).is_relative_to(Path.cwd()) else name
