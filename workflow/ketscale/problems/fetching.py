"""What was fetched from a network for a workload: its files, and a manifest with their sums beside them."""

from __future__ import annotations

import json
from pathlib import Path

from ketscale.config import Workload
from ketscale.errors import UserError
from ketscale.files import write_atomic
from ketscale.problems import store

MANIFEST = "fetched.json"


def fetch(workload: Workload, manifest: Path) -> None:
    """Fetch into the manifest's folder what is not there whole, then write the manifest.

    Raises:
        UserError: nothing is to be fetched, or the network, the disk or a checksum fails.
    """
    if not workload.fetched:
        raise UserError("nothing is to be fetched for this workload: `ketscale prepare` reads what it names")
    manifest.parent.mkdir(parents=True, exist_ok=True)
    files = {path.relative_to(manifest.parent).as_posix(): path for path in workload.fetch(manifest.parent)}
    sums = {name: store.sha256(path) for name, path in sorted(files.items())}
    write_atomic(manifest, (json.dumps({"files": sums}, indent=1) + "\n").encode())


def folder_of(manifest: Path) -> Path:
    """The folder with the files that a manifest names.

    Raises:
        UserError: the manifest or a file is missing.
    """
    try:
        files = json.loads(manifest.read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{manifest}: not there, or damaged; run the rule fetch, or `ketscale fetch`"
        ) from None
    for name in files:
        if not (manifest.parent / name).is_file():
            raise UserError(
                f"{manifest.parent / name}: missing; delete {manifest} and run the rule fetch again"
            )
    return manifest.parent
