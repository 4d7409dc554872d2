"""Data on disk, and manifests that list the SHA-256 of their files: what was fetched, and what was prepared.

Prepared data are in a folder named by the hash of all that determines its content. The manifest with it is a small JSON
file that points to the folder. Its bytes depend only on the content, so a run whose input is the manifest is trained again
when the content changes, not when a file is touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale import strict_json
from ketscale.config import Data, Split, Workload
from ketscale.errors import UserError, damaged
from ketscale.files import clear, naming, sha256, temporary_prefix, write_atomic

SCHEMA = 2
INNER = "manifest.json"


@dataclass(frozen=True)
class PreparedFolder:
    """Prepared data on disk; every file was verified.

    entries: the content of its manifest, such as `settings` and `shared`.
    """

    path: Path
    entries: Mapping[str, Any]

    def array(self, name: str) -> NDArray[Any]:
        """The array of an .npy file, mapped from disk."""
        return np.load(self.path / name, mmap_mode="r")

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays of an .npz file."""
        with np.load(self.path / name) as archive:
            return dict(archive)

    def data(self, content: Any, split: Split) -> Data:
        """The data of a run, with the hashes of data and folder, which its record keeps."""
        return Data(content, split, self.entries["data_hash"], self.entries["hash"])


def write(folder: Path, contents: Mapping[str, NDArray[Any] | Mapping[str, NDArray[Any]]]) -> None:
    """Write the files of these names: an array as .npy, arrays by name as .npz, with rows side by side."""
    for name, content in contents.items():
        if isinstance(content, Mapping):
            arrays: Any = content
            np.savez(folder / name, allow_pickle=False, **arrays)
        else:
            np.save(folder / name, np.asarray(content, order="C"))


def identity_of(workload: Workload, data_hash: str, code_version: int, **more: Any) -> dict[str, Any]:
    """The identity of a workload's prepared data for `publish`: all that determines their content.

    The settings are without paths, which depend on the machine and not on the content.
    """
    return {
        "workload": type(workload).__name__,
        "settings": workload.content(),
        "data_hash": data_hash,
        "code_version": code_version,
        **more,
    }


def publish(
    manifest: Path,
    identity: Mapping[str, Any],
    files: Sequence[str],
    fill: Callable[[Path], Mapping[str, Any]],
) -> None:
    """Build the folder of `identity` unless it exists and is intact, then point `manifest` to it.

    identity: all that determines the content; see `identity_of`.
    fill: writes `files` into the folder that it is given, and returns further entries of the manifest. It may write more
        files, which are not checked. `shared`, the `splits.shared` of the split, is an entry or part of the identity.
    """
    identity = {"schema": SCHEMA, **identity}
    name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    manifest.parent.mkdir(parents=True, exist_ok=True)
    clear(manifest.parent)
    folder = manifest.parent / name
    if not _valid(folder, identity["code_version"]):
        with naming(folder):
            _build(folder, identity, files, fill)
    write_atomic(manifest, (folder / INNER).read_bytes())


def _build(
    folder: Path, identity: Mapping[str, Any], files: Sequence[str], fill: Callable[[Path], Mapping[str, Any]]
) -> None:
    """Write `folder` completely or not at all."""
    temporary = Path(tempfile.mkdtemp(".tmp", temporary_prefix(folder), folder.parent))
    try:
        temporary.chmod(0o755)
        about = {"identified_by": sorted(identity), "hash": folder.name, "folder": folder.name}
        described = {**identity, **about, **fill(temporary)}
        described["files"] = {name: sha256(temporary / name) for name in files}
        write_atomic(temporary / INNER, (json.dumps(described, indent=1, sort_keys=True) + "\n").encode())
        # Another process may have made it in the meantime.
        if not _valid(folder, identity["code_version"]):
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def opened(manifest: Path, code_version: int) -> PreparedFolder:
    """The folder that `manifest` points to, after checking the SHA-256 of the files that it lists.

    Raises:
        UserError: the manifest or a file is missing or damaged, or was written by another version.
    """
    described = _read(manifest, code_version)
    folder = manifest.parent / described["folder"]
    # The manifest inside is the same, unless one of the two has changed.
    advice = f"delete {folder} and {manifest} and run the rule prepare again"
    _verify(folder, {INNER: sha256(manifest), **described["files"]}, advice)
    return PreparedFolder(folder, described)


def fetch(workload: Workload, manifest: Path) -> None:
    """Fetch the files of a workload that are missing or incomplete into the manifest's folder, then write the manifest.

    Raises:
        UserError: the workload fetches nothing, or the network, the disk or a checksum fails.
    """
    if not workload.fetched:
        raise UserError("there is nothing to fetch for this workload; prepare it")
    manifest.parent.mkdir(parents=True, exist_ok=True)
    files = {path.relative_to(manifest.parent).as_posix(): path for path in workload.fetch(manifest.parent)}
    sums = {name: sha256(path) for name, path in sorted(files.items())}
    write_atomic(manifest, (json.dumps({"files": sums}, indent=1) + "\n").encode())


def fetched(manifest: Path) -> Path:
    """The folder that holds the files of a manifest that `fetch` has written.

    Raises:
        UserError: the manifest or a file is missing or damaged.
    """
    with damaged(f"{manifest}: is missing or damaged", "run the rule fetch, or `ketscale fetch`"):
        files = dict(strict_json.loads(manifest.read_text("utf-8"))["files"])
    _verify(manifest.parent, files, f"delete it and {manifest}, and run the rule fetch again")
    return manifest.parent


def _verify(folder: Path, digests: Mapping[str, str], advice: str) -> None:
    """Raise UserError unless the files of a folder have these SHA-256."""
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file() or sha256(path) != digest:
            raise UserError(f"{path}: is {'damaged' if path.exists() else 'missing'}; {advice}")


def _read(path: Path, code_version: int) -> dict[str, Any]:
    """The content of a manifest of prepared data."""
    with damaged(f"{path}: is missing, or no manifest of prepared data", "run the rule prepare again"):
        described: dict[str, Any] = strict_json.loads(path.read_text("utf-8"))
        version = described["schema"], described["code_version"]
        described = {**described, "files": dict(described["files"]), "folder": str(described["folder"])}
    if version != (SCHEMA, code_version):
        raise UserError(f"{path}: was written by another version; delete it and run the rule prepare again")
    return described


def _valid(folder: Path, code_version: int) -> bool:
    """Whether `folder` exists and every file has the SHA-256 that its inner manifest lists."""
    try:
        _verify(folder, _read(folder / INNER, code_version)["files"], "")
    except (UserError, OSError):
        return False
    return True
