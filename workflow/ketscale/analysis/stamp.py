"""The stamp of a report says what tables, figures and page were made from, so that no number goes by another's name.

It is the last file that is written into the results folder, and has the digests of what was made, of the config, of the
records and of the data. Contents decide, not times or Snakemake's notes. The Snakefile imports this, so it imports
nothing heavy.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from ketscale import __version__, grid
from ketscale.config import Config, sources
from ketscale.errors import UserError, short
from ketscale.files import clear, read_bytes, sha256, write_atomic
from ketscale.jobs import baselines, prepared

NAME = "stamp.json"
TABLES, FIGURES, PAGE = "tables", "figures", "report.html"

# Writing takes a second or two.
_PATIENCE_S, _LOOK_S = 60.0, 0.02


class Sources(msgspec.Struct, frozen=True):
    """What a report is made from. All digests are SHA-256.

    version: of the package. config: digest of the config's text. data: of each workload the hash of its features and the digest of its source files; None if there was none or it was unknown. baselines:
    the digest of each workload's file, of those that there are. records: the digest of each record that exists, whether or
    not it can be used, by its path below the results folder.
    """

    version: str
    config: str
    data: dict[str, tuple[str | None, str | None]]
    baselines: dict[str, str]
    records: dict[str, str]

    @classmethod
    def of(cls, config: Config, results: Path) -> Sources:
        """What a report of this config would be made from now.

        Ask before the records are read, so that a report of records that change meanwhile does not agree with them.
        """
        manifests = {name: prepared.manifest(config, results, name) for name in config.studied}
        data = {
            name: (prepared.features_hash(manifest), _source_files(config, results, name))
            for name, manifest in manifests.items()
        }
        text = hashlib.sha256(config.text.encode()).hexdigest()
        files = {name: baselines.path(config, results, name) for name in config.studied}
        beside = {name: sha256(file) for name, file in files.items() if file and file.exists()}
        return cls(__version__, text, data, beside, _records(config, results))

    @property
    def digest(self) -> str:
        """The digest of all of it."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


class _Stamp(msgspec.Struct, frozen=True):
    """complete: whether every run had a record that could be used. files: the digests of what was made, by path."""

    sources: Sources
    complete: bool
    files: dict[str, str]


def write(results: Path, made: Mapping[str, bytes], of: Sources, complete: bool) -> None:
    """Write what was made, by the paths below the results folder, and its stamp; what an earlier call made goes.

    Raises:
        UserError: another call has been writing here for a minute.
    """
    # Snakemake expects the folder of figures, also where no study has one.
    for folder in (results / TABLES, results / FIGURES):
        folder.mkdir(parents=True, exist_ok=True)
    clear(results, results / TABLES, results / FIGURES)
    with _lock(results, fcntl.LOCK_EX):
        earlier: Iterable[str] = ()
        # A damaged stamp says nothing of what an earlier call made.
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            earlier = _read(results).files
        for name in set(earlier) - made.keys():
            (results / name).unlink(missing_ok=True)
        for name, content in made.items():
            write_atomic(results / name, content)
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in made.items()}
        text = json.dumps(msgspec.to_builtins(_Stamp(of, complete, digests)), indent=1)
        write_atomic(results / NAME, f"{text}\n".encode())


def outdated(config: Config, results: Path) -> str | None:
    """Why tables, figures and page must be made again although they are there; None if they must not."""
    try:
        if not os.path.lexists(results / NAME):
            left = [*(results / TABLES).glob("*"), *(results / FIGURES).glob("*"), *results.glob(PAGE)]
            return (
                f"{results / NAME}: is missing, so that nothing says what {left[0]} is of" if left else None
            )
        with _lock(results, fcntl.LOCK_SH):
            stamp = _read(results)
            for name, digest in stamp.files.items():
                if sha256(results / name) != digest:
                    return f"{results / name}: is not the file that was made: edited or damaged"
        return _differs(config, results, stamp)
    except msgspec.MsgspecError as error:
        return f"{results / NAME}: damaged ({short(error)})"
    except FileNotFoundError as error:
        return f"{error.filename}: is missing"
    except OSError as error:  # such as a pipe in place of a file
        return f"{error.filename}: {error.strerror}"
    except UserError as error:  # a source file that cannot be read, say
        return str(error)


def _differs(config: Config, results: Path, stamp: _Stamp) -> str | None:
    """What the config, its records or its data have, that a report has not been made from."""
    made, now, page = stamp.sources, Sources.of(config, results), results / PAGE
    if made.version != now.version:
        return f"{page}: made by KetScale {short(made.version)}, not by {now.version}"
    if made.config != now.config:
        return f"{page}: made for another config than this one ({config.title!r})"
    # A folder may have been copied without its runs.
    here = now if (results / grid.RUNS).is_dir() else made
    for workload, then in made.data.items():
        if then != here.data.get(workload):
            return f"{page}: the data of workload {workload} have changed, come or gone since it was made"
    if made.baselines != here.baselines:
        return f"{page}: baselines have changed, come or gone since it was made"
    for path, digest in made.records.items():
        if here.records.get(path) != digest:
            return f"{results / path} has changed or gone since {page} was made"
    if not (stamp.complete or config.partial):
        return f"{page}: made while some runs had no record that could be used"
    return f"{page}: records came since it was made" if made.records != here.records else None


def _read(results: Path) -> _Stamp:
    stamp = msgspec.json.decode(read_bytes(results / NAME), type=_Stamp)
    for name in stamp.files:
        if "\0" in name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise msgspec.ValidationError("it names what is no file of its folder")
    return stamp


def _records(config: Config, results: Path) -> dict[str, str]:
    found = {}
    for run in config.runs:
        try:
            found[run.path] = sha256(results / run.path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            found[run.path] = f"cannot be read: {error.strerror}"
    return found


def _source_files(config: Config, results: Path, workload: str) -> str | None:
    if not config.placed:
        return None
    try:
        files = sources(config, workload)
    except UserError:  # they are not on this machine
        return None
    return prepared.digest(files, results / grid.PREPARED.format(workload=workload))


@contextlib.contextmanager
def _lock(folder: Path, kind: int) -> Iterator[None]:
    """Lock a folder: alone to write, shared to read. The folder itself is locked, since it may be read-only.

    Raises:
        UserError: another call has held it for a minute.
    """
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    end = time.monotonic() + _PATIENCE_S
    try:
        while True:
            try:
                fcntl.flock(place, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    why = f"another call has been writing here for {_PATIENCE_S:g} s"
                    raise UserError(
                        f"{folder}: {why}; let it end, or end it, and run the same command again"
                    ) from None
                time.sleep(_LOOK_S)
                continue
            except OSError:
                # Some network file systems have no such locks. A mixture of two calls does not agree with its stamp there either.
                pass
            break
        yield
    finally:
        os.close(place)
