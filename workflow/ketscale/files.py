"""Paths that users give, checksums, CSV, and atomic writes: readers find the old file or the new one, never a part.

Whatever is read from a path that a user gives, or from a folder of results, is opened by `opened`, `read_bytes` or
`read_text`: a pipe or a device there is an error at once.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import functools
import hashlib
import io
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ModuleNotFoundError:  # on Windows
    fcntl = None  # type: ignore[assignment]

from ketscale import process
from ketscale.errors import UserError

# Names of temporary files; those of version 0.3 do not say where the process was.
_TEMPORARY = re.compile(r"\..+\.(?:(?P<processes>[0-9a-f]{8})-)?(?P<pid>[0-9]+)\.(?:\w+\.)?tmp")
_ABANDONED_S = 86400.0
# Flags of open(2), as far as this system has them.
_AT_ONCE = sum(getattr(os, flag, 0) for flag in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))


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


_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def require_regular(path: Path | str) -> None:
    """Check that a path leads to a regular file, for libraries that open it themselves.

    Raises:
        OSError: there is none, or it is something else: a pipe has no end, and a device may have none either.
    """
    _require_regular(os.stat(path), path)


def _require_regular(status: os.stat_result, path: Path | str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"is {kind}, not a regular file", str(path))


def opened(path: Path | str) -> io.BufferedReader:
    """A regular file, opened to read its bytes.

    Raises:
        OSError: as for `require_regular`, or it cannot be read.
    """
    # Before it is opened too, since that alone does something to some devices.
    require_regular(path)
    descriptor = os.open(path, os.O_RDONLY | _AT_ONCE)
    try:
        _require_regular(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path | str) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: as for `opened`.
    """
    with opened(path) as file:
        return file.read()


def read_text(path: Path | str, encoding: str = "utf-8", errors: str = "strict") -> str:
    """The text in a regular file, each line with the end "\\n".

    Raises:
        OSError: as for `opened`.
        UnicodeDecodeError: it has another encoding.
    """
    with io.TextIOWrapper(opened(path), encoding, errors) as file:
        return file.read()


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
    with opened(source) as content, _replacing(path) as file:
        shutil.copyfileobj(content, file)


@contextlib.contextmanager
def _replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A temporary file that takes the place of `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{temporary_prefix(path)}tmp")
    with naming(path):
        if path.exists() and not path.is_file():
            # A device or a pipe, such as /dev/stdout, would be replaced by a file.
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


@contextlib.contextmanager
def alone(lock: Path, patience_s: float) -> Iterator[None]:
    """Let one process at a time do what is inside, if files can be locked here; the others wait, but not for ever.

    Only for what several may do at once without harm: the process that holds the lock may have been stopped.
    """
    # A pipe of that name is an error, and not waited for.
    file = os.open(lock, os.O_WRONLY | os.O_CREAT | _AT_ONCE, 0o666)
    end = time.monotonic() + patience_s
    try:
        while fcntl is not None and time.monotonic() < end:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break
            else:
                break
        yield
    finally:
        os.close(file)


def temporary_prefix(path: Path) -> str:
    """How the names of this process's temporary files and folders for `path` begin; they end with "tmp"."""
    return f".{path.name}.{_processes()}-{os.getpid()}."


def clear(*folders: Path) -> None:
    """Remove what killed writers have left in some folders, which need not exist.

    A temporary file is abandoned if its writer is known to have ended, or, if that was on another machine, if it has
    not changed for a day.
    """
    for folder in folders:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                match = _TEMPORARY.fullmatch(name)
                if match and _is_abandoned(folder / name, match["processes"], int(match["pid"])):
                    _remove(folder / name)


@functools.cache
def _processes() -> str:
    """Equal for processes that see each other under the same numbers."""
    here = (process.node_name(), *process.boot_and_namespace())
    return hashlib.sha256(repr(here).encode()).hexdigest()[:8]


def _is_abandoned(path: Path, processes: str | None, pid: int) -> bool:
    # Elsewhere than on POSIX, signal 0 does more than to ask.
    if processes != _processes() or os.name != "posix":
        return time.time() - path.lstat().st_mtime > _ABANDONED_S
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it is another user's
        return False
    return False


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # another process was faster, or it is another user's
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
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


# The beginning of a spreadsheet's formula, also in its wide form, or what hides such a beginning.
_FORMULA = re.compile("'*[=+\\-@\\t\\r\\n\uff1d\uff0b\uff0d\uff20]")
_ESCAPED = re.compile("'" + _FORMULA.pattern)


def as_cell(value: Any) -> Any:
    """A value as a cell of a CSV file: text that a spreadsheet would take for a formula gets an apostrophe.

    Numbers stay as they are, also those that are text. `of_cell` is the inverse.
    """
    if not isinstance(value, str) or not _FORMULA.match(value):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def of_cell(cell: str) -> str:
    """The text of a cell that `as_cell` made."""
    return cell[1:] if _ESCAPED.match(cell) else cell


def csv_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """The rows as CSV, in UTF-8; None becomes an empty cell, and no text a formula."""
    text = io.StringIO()
    # Before Python 3.13 a carriage return in a cell is quoted only if lines end with one.
    writer = csv.writer(text, lineterminator="\r\n")
    lines = []
    known = set(columns)
    for row in (dict(zip(columns, columns, strict=True)), *rows):
        if not row.keys() <= known:
            raise ValueError(f"no columns: {sorted(row.keys() - known)}")
        writer.writerow([as_cell(row.get(name)) for name in columns])
        lines.append(text.getvalue()[:-2])
        text.seek(0)
        text.truncate()
    return "".join(f"{line}\n" for line in lines).encode()


def write_csv(path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Write the rows as CSV, atomically, by `csv_of`."""
    write_atomic(path, csv_of(rows, columns))


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a file that `write_csv` wrote, as text.

    Raises:
        OSError: as for `opened`.
    """
    with io.TextIOWrapper(opened(path), "utf-8", newline="") as file:
        head, *rows = ([of_cell(cell) for cell in row] for row in csv.reader(file))
    return [dict(zip(head, row, strict=True)) for row in rows]


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal.

    Raises:
        OSError: as for `opened`.
    """
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
