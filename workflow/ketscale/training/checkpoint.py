"""Checkpoints: one file, atomic, keyed by all that a run's numbers depend on, with a checksum of its content."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import torch

from ketscale.errors import UserError
from ketscale.files import write_atomic


def identify(*parts: str) -> str:
    """One hexadecimal SHA-256 of the hashes and versions that a checkpoint belongs to."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def path_of(folder: Path, key: str) -> Path:
    """Where the checkpoint of the run in `folder` lies: with another key a run starts anew beside it."""
    return folder / "checkpoint" / f"{key[:16]}.pt"


def save(folder: Path, key: str, state: dict[str, Any]) -> None:
    """Write the state (tensors, numbers, strings, lists and dicts) atomically, a JSON header line before it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    header = {"key": key, "sha256": hashlib.sha256(content).hexdigest()}
    write_atomic(path_of(folder, key), json.dumps(header).encode() + b"\n" + content)


def load(folder: Path, key: str) -> dict[str, Any] | None:
    """The state to go on from, on the CPU, or None when there is none.

    Raises:
        UserError: the checkpoint is damaged, or was written under another key.
    """
    path = path_of(folder, key)
    try:
        header, content = path.read_bytes().split(b"\n", 1)
        about = json.loads(header)
    except FileNotFoundError:
        return None
    except ValueError:
        raise UserError(f"{path}: not a checkpoint; delete it and run again from the start") from None
    if about.get("sha256") != hashlib.sha256(content).hexdigest():
        raise UserError(f"{path}: damaged (its checksum differs); delete it and run again from the start")
    if about.get("key") != key:
        raise UserError(
            f"{path}: written under other settings of this run; delete it and run again from the start"
        )
    return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")


def others(folder: Path, key: str) -> bool:
    """Whether there are checkpoints of this run under other keys."""
    return any(path != path_of(folder, key) for path in (folder / "checkpoint").glob("*.pt"))


def clear(folder: Path) -> None:
    """Delete every checkpoint of a run that has its record: a rerun starts anew."""
    for path in (folder / "checkpoint").glob("*.pt"):
        path.unlink()
