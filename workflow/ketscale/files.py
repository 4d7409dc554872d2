"""Checksums, CSV, and atomic writes: readers find the old file or the new one, never a part."""

from __future__ import annotations

import contextlib
import csv
import errno
import functools
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

from ketscale import process

# Names of temporary files and folders. Nobody writes one for longer than a day.
_TEMPORARY = re.compile(r"\..+\.(?:[0-9a-f]{8}-)?[0-9]+\.(?:\w+\.)?tmp")
_ABANDONED_S = 86400.0


def write_atomic(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Replace the content of `path` with `data`: write a temporary file, fsync, rename.

    mode: the permissions of the new file, less the umask.

    Raises:
        OSError: it cannot be written; names `path`, or the folder that cannot be made.
    """
    with _replacing(path, mode) as file:
        file.write(data)


def copy_atomic(source: Path, path: Path) -> None:
    """Replace the content of `path` with that of `source`, as `write_atomic` does, without holding it in memory."""
    with source.open("rb") as content, _replacing(path) as file:
        shutil.copyfileobj(content, file)


@contextlib.contextmanager
def _replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A temporary file that replaces `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{temporary_prefix(path)}tmp")
    with naming(path):
        if path.exists() and not path.is_file():
            # A device, such as /dev/null, would be replaced by a file.
            raise OSError(errno.EINVAL, "is not a file", str(path))
        try:
            with open(temporary, "wb", opener=functools.partial(os.open, mode=mode)) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    if os.name == "posix":  # others do not open folders
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def temporary_prefix(path: Path) -> str:
    """How the names of this process's temporary files and folders for `path` begin; they end with "tmp"."""
    node = hashlib.sha256(process.node_name().encode()).hexdigest()[:8]
    return f".{path.name}.{node}-{os.getpid()}."


def clear(*folders: Path) -> None:
    """Remove what killed writers have left in some folders, which need not exist, more than a day ago."""
    for path in [path for folder in folders for path in folder.glob(".*.tmp")]:
        with contextlib.suppress(OSError):  # another process was faster, or it is another user's
            old = time.time() - path.lstat().st_mtime > _ABANDONED_S
            if old and _TEMPORARY.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif old and _TEMPORARY.fullmatch(path.name):
                path.unlink()


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make an error that names no file, or only the temporary one of `path`, name `path`."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and f"/.{path.name}." not in f"/{error.filename}":
            raise
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


def csv_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """The rows as CSV, in UTF-8; None becomes an empty cell."""
    lines = list[str]()
    # Before Python 3.13, the writer quotes a carriage return in a cell only if lines end with one.
    writer = csv.DictWriter(SimpleNamespace(write=lines.append), columns, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return "".join(f"{line[:-2]}\n" for line in lines).encode()


def write_csv(path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Write the rows as CSV, atomically, by `csv_of`."""
    write_atomic(path, csv_of(rows, columns))


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a file that `write_csv` wrote, as text."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
