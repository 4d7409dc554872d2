"""Files fetched from the network for a workload, and the manifest beside them that lists their checksums."""

from __future__ import annotations

import json
from pathlib import Path

from ketscale import strict_json
from ketscale.config import Workload
from ketscale.errors import UserError
from ketscale.files import sha256, write_atomic


def fetch(workload: Workload, manifest: Path) -> None:
    """Fetch the files that are missing or incomplete into the manifest's folder, then write the manifest.

    Raises:
        UserError: the workload fetches nothing, or the network, the disk or a checksum fails.
    """
    if not workload.fetched:
        raise UserError(
            "there is nothing to fetch for this workload; run the rule prepare, or `ketscale prepare`"
        )
    manifest.parent.mkdir(parents=True, exist_ok=True)
    files = {path.relative_to(manifest.parent).as_posix(): path for path in workload.fetch(manifest.parent)}
    sums = {name: sha256(path) for name, path in sorted(files.items())}
    write_atomic(manifest, (json.dumps({"files": sums}, indent=1) + "\n").encode())


def folder_of(manifest: Path) -> Path:
    """The folder that holds the files of a manifest.

    Raises:
        UserError: the manifest or a file is missing or damaged.
    """
    try:
        files = {
            str(name): str(digest)
            for name, digest in strict_json.loads(manifest.read_text("utf-8"))["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"{manifest}: is missing or damaged; run the rule fetch, or `ketscale fetch`"
        ) from None
    for name, digest in files.items():
        path = manifest.parent / name
        if not path.is_file() or sha256(path) != digest:
            fault = "damaged" if path.exists() else "missing"
            raise UserError(f"{path}: {fault}; delete it and {manifest}, and run the rule fetch again")
    return manifest.parent
