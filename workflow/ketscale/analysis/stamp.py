"""Stamps of tables and figures say what these were made from, so that no number goes by another's name.

All readers of tables and figures read them here. A stamp is the last file that is written into its folder. It has the
digests of the files there, of the config, and of the records (of figures: of the tables) that they were made from.
Contents decide, not times or Snakemake's notes. The Snakefile imports this, so it imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ketscale import __version__, grid
from ketscale.analysis import catalogue, claims
from ketscale.config import Config, sources
from ketscale.errors import UserError, short
from ketscale.files import clear, read_bytes, write_atomic
from ketscale.jobs import prepared

NAME = "stamp.json"
TABLES, FIGURES, PAGE = "tables", "figures", "report.html"
COLLECT, FIGURE = "run `ketscale collect` again, or Snakemake", "run `ketscale figures` again, or Snakemake"

# Writing takes a second or two.
_PATIENCE_S = 60.0
_LOOK_S = 0.02
# Some network file systems have no such locks. A mixture of two calls does not agree with its stamp there either.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
# How a page (page.html.j2) says what it was made from, near its beginning.
_MADE_FROM = '<meta name="ketscale-made-from" content="{digest}">'
_HEAD = 4096
_SEAL = b"<!-- sha256 of all before: "


class OfTables(msgspec.Struct, frozen=True):
    """The stamp of tables. All digests are SHA-256.

    version: of the package that made them. ledger: digest of its claims. config: digest of the config's text. complete:
    whether every run had a record that could be used. data: of each workload the hash of its features and the digest of
    its source files; None if there was none or it was unknown. records: the records that existed, by path. files: the
    tables, by name.
    """

    version: str
    ledger: str
    config: str
    complete: bool
    data: dict[str, tuple[str | None, str | None]]
    records: dict[str, str]
    files: dict[str, str]


class OfFigures(msgspec.Struct, frozen=True):
    """The stamp of figures. tables: digest of the stamp of the tables. files: the figures, by name."""

    tables: str
    files: dict[str, str]


class Unusable(UserError):
    """Tables or figures that cannot be used: the fault, and the remedy."""

    def __init__(self, fault: str, remedy: str) -> None:
        super().__init__(f"{fault}; {remedy}")
        self.fault = fault


@dataclass(frozen=True)
class Verified:
    """The contents of files that agree with their stamp, by name, and the digest of the stamp."""

    contents: Mapping[str, bytes]
    digest: str

    def by_name(self) -> dict[str, bytes]:
        """The contents of tables by the names of the tables."""
        return {name: self.contents[f"{name}.csv"] for name in catalogue.TABLES}


def records(config: Config, results: Path) -> dict[str, str]:
    """The digest of each record that exists, whether or not it can be used, by its path below `results`."""
    found = {}
    for run in config.runs:
        path = run.path
        try:
            found[path] = _sha256(read_bytes(results / path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            found[path] = f"cannot be read: {error.strerror}"
    return found


def write_tables(
    config: Config, results: Path, made: Mapping[str, bytes], found: Mapping[str, str], complete: bool
) -> None:
    """Write the tables `made` of some records, by the names of their files, and their stamp.

    found: the result of `records` before they were read, so that a record that changed meanwhile does not agree.

    Raises:
        Unusable: another call has been writing the same for a minute.
    """
    config_digest, data = _sha256(config.text.encode()), _data(config, results)
    stamp = OfTables(__version__, _ledger(), config_digest, complete, data, dict(found), _digests(made))
    _publish(results / TABLES, made, stamp)


def tables(config: Config, results: Path) -> Verified:
    """The tables in the results folder, after checking that they are those of this config, its records and its data.

    Records are not looked at in a folder that was copied without its runs. Runs that have ended since a partial
    collection do not matter.

    Raises:
        Unusable: names the file that is missing, edited, of another config, or made from other records.
    """
    return _tables(config, results)[0]


def _tables(config: Config, results: Path) -> tuple[Verified, OfTables, Mapping[str, str]]:
    """The tables, their stamp, and the records that are there now (those of the stamp if there are no runs)."""
    folder = results / TABLES
    contents, stamp, digest = _read(folder, OfTables, COLLECT)
    if stamp.version != __version__:
        raise Unusable(f"{folder}: made by KetScale {short(stamp.version)}, not by {__version__}", COLLECT)
    if stamp.ledger != _ledger():
        raise Unusable(f"{folder}: judged other claims than {claims.LEDGER} has now", COLLECT)
    if stamp.config != _sha256(config.text.encode()):
        raise Unusable(f"{folder}: made for another config than this one ({config.title!r})", COLLECT)
    _require_names(folder, contents, [f"{name}.csv" for name in catalogue.TABLES], COLLECT)
    now = _data(config, results)
    for workload, then in stamp.data.items():
        if any(a != b for a, b in zip(then, now.get(workload, then), strict=True) if None not in (a, b)):
            raise Unusable(
                f"{folder}: the data of workload {workload} have changed since they were made", COLLECT
            )
    found = records(config, results) if (results / grid.RUNS).is_dir() else stamp.records
    changed = [path for path, made in stamp.records.items() if found.get(path) != made]
    if changed:
        more = f" and {len(changed) - 1} more records have" if len(changed) > 1 else " has"
        raise Unusable(f"{results / changed[0]}{more} changed or gone since {folder} was made", COLLECT)
    return Verified(contents, digest), stamp, found


def write_figures(results: Path, made: Mapping[str, bytes], drawn_from: Verified) -> None:
    """Write the figures `made` from some tables, by the names of their files, and their stamp.

    Raises:
        Unusable: another call has been writing the same for a minute.
    """
    _publish(results / FIGURES, made, OfFigures(drawn_from.digest, _digests(made)))


def figures(config: Config, results: Path, of: Verified) -> Verified:
    """The figures in the results folder, after checking that they were drawn from the tables `of`.

    Raises:
        Unusable: names the file that is missing, edited or drawn from other tables.
    """
    folder = results / FIGURES
    contents, stamp, digest = _read(folder, OfFigures, FIGURE)
    if stamp.tables != of.digest:
        raise Unusable(f"{folder}: drawn from other tables than those in {results / TABLES}", FIGURE)
    names = [f"{figure}.{form}" for figure in catalogue.figures(config) for form in catalogue.FORMATS]
    _require_names(folder, contents, names, FIGURE)
    return Verified(contents, digest)


def outdated(config: Config, results: Path) -> tuple[str, str] | None:
    """The first of tables, figures and page that must be made again although it is there, and why; None if none must.

    What is missing is made by Snakemake only if something is made from it. So tables or figures without a stamp, from
    which later stages were made, must be made again; if no later stage is there, Snakemake sees that by itself.
    """
    try:
        stage = f"{TABLES}/{NAME}"
        if not _stamped(results, stage, f"{FIGURES}/{NAME}", PAGE):
            return None
        made, stamp, found = _tables(config, results)
        if not (stamp.complete or config.partial):
            raise Unusable(
                f"{results / TABLES}: made while some runs had no record that could be used", COLLECT
            )
        if stamp.records != found:
            raise Unusable(f"{results / TABLES}: records came since they were made", COLLECT)
        stage = f"{FIGURES}/{NAME}"
        if not _stamped(results, stage, PAGE):
            return None
        drawn, stage = figures(config, results, made), PAGE
        page = _content(results / PAGE)
        if page is not None and _MADE_FROM.format(digest=drawn.digest).encode() not in page[:_HEAD]:
            raise Unusable(f"{results / PAGE}: made from other tables or figures", "")
        if page is not None and page != sealed(page.rpartition(_SEAL)[0]):
            raise Unusable(f"{results / PAGE}: is not the file that was made: edited or damaged", "")
    except Unusable as why:
        return stage, why.fault
    except OSError as error:  # such as a pipe in place of a file
        return stage, f"{error.filename}: {error.strerror}"
    except UserError as why:  # a source file that cannot be read, say
        return stage, str(why)
    return None


def _stamped(results: Path, stamp: str, *later: str) -> bool:
    """Whether a stamp is there.

    Raises:
        Unusable: it is not, but something of a later stage is.
    """
    if os.path.lexists(results / stamp):
        return True
    if any(os.path.lexists(results / name) for name in later):
        raise Unusable(f"{results / stamp}: is missing, so that nothing says what was made from it", "")
    return False


def sealed(page: bytes) -> bytes:
    """A page with the digest of its content at its end."""
    return page + _SEAL + f"{_sha256(page)} -->\n".encode()


def _ledger() -> str:
    return _sha256(read_bytes(claims.LEDGER))


def _data(config: Config, results: Path) -> dict[str, tuple[str | None, str | None]]:
    """The hash of each workload's features and the digest of its source files; None for what is unknown."""
    return {
        name: (
            prepared.features_hash(prepared.manifest(config, results, name)),
            _sources(config, results, name),
        )
        for name in config.studied
    }


def _sources(config: Config, results: Path, workload: str) -> str | None:
    if not config.placed:
        return None
    try:
        files = sources(config, workload)
    except UserError:  # they are not on this machine
        return None
    return prepared.digest(files, results / grid.PREPARED.format(workload=workload))


def _publish(folder: Path, made: Mapping[str, bytes], stamp: OfTables | OfFigures) -> None:
    """Write files and then their stamp, while no other call on this machine reads or writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    clear(folder)
    with _lock(folder, fcntl.LOCK_EX):
        for name, content in made.items():
            write_atomic(folder / name, content)
        text = json.dumps(msgspec.to_builtins(stamp), indent=1)
        write_atomic(folder / NAME, f"{text}\n".encode())


def _read(folder: Path, kind: type[Any], remedy: str) -> tuple[dict[str, bytes], Any, str]:
    """The files of a stamp's folder, the stamp, and its digest. What is returned is what was checked.

    Raises:
        Unusable: names the file that is missing, or is not the one that was made.
    """
    path = folder / NAME
    try:
        with _lock(folder, fcntl.LOCK_SH):
            data = read_bytes(path)
            stamp = msgspec.json.decode(data, type=kind)
            if any(name != os.path.basename(name) or "\0" in name for name in stamp.files):
                raise Unusable(f"{path}: damaged (it names what is no file of its folder)", remedy)
            found = {name: _content(folder / name) for name in stamp.files}
    except (FileNotFoundError, NotADirectoryError):
        raise Unusable(f"{path}: no such file", remedy.replace(" again", " first")) from None
    except msgspec.MsgspecError as error:
        raise Unusable(f"{path}: damaged ({short(error)})", remedy) from None
    contents = {}
    for name, content in found.items():
        if content is None:
            raise Unusable(f"{folder / name}: is missing", remedy)
        if _sha256(content) != stamp.files[name]:
            raise Unusable(f"{folder / name}: is not the file that was made: edited or damaged", remedy)
        contents[name] = content
    return contents, stamp, _sha256(data)


def _content(path: Path) -> bytes | None:
    try:
        return read_bytes(path)
    except FileNotFoundError:
        return None


def _require_names(folder: Path, contents: Mapping[str, bytes], names: list[str], remedy: str) -> None:
    for name in names:
        if name not in contents:
            raise Unusable(f"{folder / name}: is not in {folder / NAME}", remedy)


@contextlib.contextmanager
def _lock(folder: Path, kind: int) -> Iterator[None]:
    """Lock a folder: alone to write, shared to read. The folder itself is locked, since it may be read-only.

    Raises:
        Unusable: another call has held it for a minute.
    """
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    end = time.monotonic() + _PATIENCE_S
    try:
        while not _try_lock(place, kind):
            if time.monotonic() > end:
                raise Unusable(
                    f"{folder}: another call has been writing here for {_PATIENCE_S:g} s",
                    "let it end, or end it, and run the same command again",
                )
            time.sleep(_LOOK_S)
        yield
    finally:
        os.close(place)


def _try_lock(place: int, kind: int) -> bool:
    try:
        fcntl.flock(place, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _digests(made: Mapping[str, bytes]) -> dict[str, str]:
    return {name: _sha256(content) for name, content in made.items()}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
