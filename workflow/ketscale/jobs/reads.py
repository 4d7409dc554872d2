"""Which files a user's own model reads: `ketscale try` compares them with its `reads`.

Python reports every `open` (its audit events), but not of libraries that open files in C, as h5py and safetensors do.
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

# What opens files of its own, such as a cache of compiled code.
_OTHERS = (
    "ketscale.", "importlib._", "linecache", "torch._dynamo", "torch._inductor", "triton.", "numba.", "jax.",
)  # fmt: skip
# The folders of this package, of Python and of the system.
_PYTHON = [sys.prefix, sys.base_prefix, site.getusersitepackages(), *sysconfig.get_paths().values()]
_SYSTEM = ["/proc", "/sys", "/dev", str(Path(__file__).parents[1])]
_FOLDERS = [Path(place).resolve() for place in (*_PYTHON, *_SYSTEM)]
# The files that the user's code has read in each `watched` block that is open.
_watches: list[set[str]] = []


@contextlib.contextmanager
def watched() -> Iterator[set[str]]:
    """Inside the block the set gets the paths of the files that the user's code reads.

    So it does of files of Python that it imports from below the working directory by other means than the statements that
    `OwnCode` follows.
    """
    _listen()
    before, paths = set(sys.modules), set[str]()
    _watches.append(paths)
    try:
        yield paths
    finally:
        _watches.pop()
        for name in sys.modules.keys() - before:
            path = Path(os.path.realpath(getattr(sys.modules[name], "__file__", None) or "/"))
            if _is_users(path) and path.is_relative_to(Path.cwd()) and not name.startswith(OWN):
                paths.add(str(path))


def check(paths: set[str], name: str, model: FileModel) -> None:
    """Check that the settings of a model have the content of what it reads.

    paths: as `watched` gives them. name: the model's in the config.

    Raises:
        UserError: they lack some; says what to add to the config.
    """
    here = Path.cwd()
    lacking = sorted(paths - {os.path.realpath(Path(each).expanduser()) for each in model.reads})
    # As a config has them: relative to the working directory if they are below it.
    new = [os.path.relpath(each) if Path(each).is_relative_to(here) else each for each in lacking]
    if new:
        names = (
            each if re.fullmatch(r"[\w./~$-]+", each) else json.dumps(each) for each in (*model.reads, *new)
        )
        raise UserError(
            f"{model.file}: {model.class_} reads {' and '.join(new)}, whose content is not in the settings, so that "
            f"a change would go unnoticed: add `reads: [{', '.join(names)}]` to models.{name}"
        )


@functools.cache
def _listen() -> None:
    """Begin to record every `open`: audit hooks cannot be removed, so this is done once."""
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _watches or isinstance(arguments[0], int) or arguments[2] & os.O_WRONLY:
        return
    if _by_user() and _is_users(path := Path(os.path.realpath(os.fsdecode(arguments[0])))):
        _watches[-1].add(str(path))


def _by_user() -> bool:
    """Whether the user's code leads to a call, and not by way of KetScale, an import, a compiler or a line that is shown."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith((OWN, *_OTHERS)):
            return name.startswith(OWN)
        frame = frame.f_back
    return False


def _is_users(path: Path) -> bool:
    """Whether a path is that of a file, and not in a folder of the system, of Python or of this package."""
    return path.is_file() and not any(map(path.is_relative_to, _FOLDERS))
