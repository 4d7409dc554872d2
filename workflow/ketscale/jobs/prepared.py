"""The prepared data of a workload, and whether their settings or the files that they were made from have changed since.

The names and contents of a workload's source files have one digest, which is written next to the manifest when the data
are prepared. A file is read again only if its path, size or time is new: what was read is kept in a file next to the
manifest, so that no call reads large data again. So a file that is replaced by one of the same size and time
goes unnoticed. Imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ketscale import grid, strict_json
from ketscale.config import Config, Workload, sources
from ketscale.errors import UserError
from ketscale.files import sha256, write_atomic
from ketscale.problems.leaks import warning
from ketscale.words import say

# The files next to the manifest: the digest of the sources that it was made from, and what was read of them so far.
_MADE_FROM = "made_from.json"
_READ = "sources.json"
# Reading this many bytes takes long, so a message says so.
_MUCH = 2**31


def may_note() -> bool:
    """Whether what was read is noted. The Snakefile answers for itself: a dry run writes nothing."""
    return True


def manifest(config: Config, results: Path, workload: str) -> Path | None:
    """The path of a workload's manifest; None if its family prepares nothing."""
    return results / grid.PREPARED.format(workload=workload) if config.family(workload).prepared else None


def features_hash(manifest: Path | None) -> str | None:
    """The features hash in a manifest; None if there is no readable one."""
    hashed = strict_json.of_note(manifest).get("hash") if manifest else None
    return hashed if isinstance(hashed, str) else None


def shared(manifest: Path) -> int:
    """How many samples the parts of the prepared data have in common; of several folds, the most in one."""
    counts = strict_json.of_note(manifest).get("shared", 0)
    return max(counts, default=0) if isinstance(counts, list) else int(counts)


def leaks(results: Path, names: Iterable[str]) -> list[str]:
    """Warnings about features of some workloads that alone predict the target almost perfectly, a line each."""
    notes = ((name, strict_json.of_note(results / grid.PREPARED.format(workload=name))) for name in names)
    return [f"{name}: {warning(note['leaks'])}" for name, note in notes if "leaks" in note]


def note(manifest: Path, digest: str) -> None:
    """Note the digest of the sources that the data of a manifest were made from."""
    content = {"features": features_hash(manifest), "sources": digest}
    strict_json.write(manifest.with_name(_MADE_FROM), content)


def of_other_settings(manifest: Path, workload: Workload) -> bool:
    """Whether a manifest says that its data were prepared with other settings than these, or of another kind."""
    described = strict_json.of_note(manifest)
    settings = {"workload": type(workload).__name__, "settings": workload.content()}
    return any(described.get(name, value) != value for name, value in settings.items())


def outdated(config: Config, results: Path, workload: str) -> bool:
    """Whether a workload's data were prepared with other settings, or from other source files, than the config's.

    False where that cannot be known: the data or a source file is not here, or the config is one of a `text`, which
    does not say where files are.

    Raises:
        UserError: a source file cannot be read.
    """
    path = manifest(config, results, workload)
    hashed = features_hash(path)
    if path is None or hashed is None:
        return False
    if of_other_settings(path, config.workloads[workload][1]):
        return True
    if not config.placed:
        return False
    try:
        files = sources(config, workload)
    except UserError:
        return False
    note = strict_json.of_note(path.with_name(_MADE_FROM))
    if not files and not note:
        return False
    return note != {"features": hashed, "sources": digest(files, path)}


def digest(files: Sequence[Path], manifest: Path) -> str:
    """SHA-256 of names and contents of source files, in their order; the same wherever their folder is.

    Raises:
        UserError: a file cannot be read.
    """
    if not files:
        return ""
    cache = manifest.with_name(_READ)
    paths = list(dict.fromkeys(os.path.abspath(file) for file in files))
    cached = strict_json.of_note(cache)
    try:
        digests = _contents(paths, cached)
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read ({error.strerror})") from None
    if may_note() and digests != cached:
        # Without it the files are read again next time.
        with contextlib.suppress(OSError):
            write_atomic(cache, json.dumps(digests).encode())
    top = os.path.commonpath([os.path.dirname(path) for path in paths])
    items = zip((os.path.relpath(path, top) for path in paths), digests.values(), strict=True)
    return grid.config_hash({"sources": list(items)})


def _contents(paths: Sequence[str], cached: dict[str, Any]) -> dict[str, str]:
    """The SHA-256 of each file's content by size, time and path; what is `cached` under these is not read again."""
    sizes = {}
    for path in paths:
        stat = os.stat(path)
        sizes[f"{stat.st_size} {stat.st_mtime_ns} {path}"] = stat.st_size
    size = sum(size for key, size in sizes.items() if key not in cached)
    if size > _MUCH:
        say(f"reading {size / 2**30:.0f} GiB of new or changed source files")
    return {key: str(cached.get(key) or sha256(Path(key.split(" ", 2)[2]))) for key in sizes}
