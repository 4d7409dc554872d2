"""Checkpoints: one file, atomic, with the run's configuration hash and a checksum of its content."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import torch

from ketscale.errors import UserError
from ketscale.records import write_atomic


def path_of(folder: Path, config_hash: str) -> Path:
    """Where the checkpoint of the run in `folder` lies: under other settings a run starts anew beside it."""
    return folder / "checkpoint" / f"{config_hash[:16]}.pt"


def save(folder: Path, config_hash: str, state: dict[str, Any]) -> None:
    """Write the state (tensors, numbers, strings, lists and dicts) atomically, a JSON header line before it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    header = {"config_hash": config_hash, "sha256": hashlib.sha256(content).hexdigest()}
    write_atomic(path_of(folder, config_hash), json.dumps(header).encode() + b"\n" + content)


def load(folder: Path, config_hash: str) -> dict[str, Any] | None:
    """The state to go on from, on the CPU, or None when there is none.

    Raises:
        UserError: the checkpoint is damaged, or was written under another configuration.
    """
    path = path_of(folder, config_hash)
    try:
        header, content = path.read_bytes().split(b"\n", 1)
        about = json.loads(header)
    except FileNotFoundError:
        return None
    except ValueError:
        raise UserError(f"{path}: not a checkpoint; delete it and run again from the start") from None
    if about.get("sha256") != hashlib.sha256(content).hexdigest():
        raise UserError(f"{path}: damaged (its checksum differs); delete it and run again from the start")
    if about.get("config_hash") != config_hash:
        raise UserError(
            f"{path}: written under other settings of this run; delete it and run again from the start"
        )
    return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")


def clear(folder: Path) -> None:
    """Delete every checkpoint of a run that has its record: a rerun starts anew."""
    for path in (folder / "checkpoint").glob("*.pt"):
        path.unlink()
