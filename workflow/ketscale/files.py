"""Paths that users give, and atomic writes: readers, and crashes, find the old file or the new one, never a part."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ketscale.errors import UserError


def home() -> Path:
    """The user's home folder.

    Raises:
        UserError: the user has none, as in a container that runs under any number.
    """
    try:
        return Path.home()
    except RuntimeError:
        raise UserError(
            f"user {os.getuid()} has no home folder, and HOME is not set: set HOME to a folder of your own"
        ) from None


def expanded(path: str) -> Path:
    """The path that a user has given; ~ is the home folder.

    Raises:
        UserError: it begins with ~, and there is no such home folder.
    """
    if path == "~" or path.startswith("~/"):
        home()
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UserError(f"{path}: there is no user {path[1:].partition('/')[0]} on this machine") from None


def write_atomic(path: Path, data: bytes) -> None:
    """Replace the content of `path` with `data`: write a temporary file, fsync, rename.

    Raises:
        OSError: it cannot be written; names `path`, or the folder that cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with naming(path):
        if path.exists() and not path.is_file():
            # A device or a pipe, such as /dev/stdout, would be replaced by a file.
            raise OSError(errno.EINVAL, "is not a file", str(path))
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make an error that names no file, or only the temporary one of `path`, name `path`."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and f"/.{path.name}." not in f"/{error.filename}":
            raise
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


def write_csv(path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Write the rows as CSV, atomically; None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(path, text.getvalue().encode())
