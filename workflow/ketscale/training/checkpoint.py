"""Checkpoints: one file, written atomically, with a checksum, keyed by everything that a run's numbers depend on.

Imports torch only for a state: forecasts ask how far runs are.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

from ketscale import strict_json
from ketscale.errors import UserError, short
from ketscale.files import write_atomic

FOLDER = "checkpoint"


def identify(*parts: str) -> str:
    """The key of a checkpoint: one hexadecimal SHA-256 of the hashes that it depends on."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def path_of(folder: Path, key: str) -> Path:
    """The checkpoint's path in a run's folder. A run with another key starts from the beginning, in another file."""
    return folder / FOLDER / f"{key[:16]}.pt"


def history_of(folder: Path, key: str) -> Path:
    """The history of a training that began under this key. It is no output of Snakemake's."""
    return path_of(folder, key).with_suffix(".csv")


def save(folder: Path, key: str, state: dict[str, Any]) -> None:
    """Write a JSON header line and the state (tensors, numbers, strings, lists and dicts), atomically.

    The header has the step, for those who must not import torch to know how far a run is.
    """
    import torch

    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    header = {
        "key": key,
        "step": _step(state),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    write_atomic(path_of(folder, key), json.dumps(header).encode() + b"\n" + content)


def load(folder: Path, key: str) -> dict[str, Any] | None:
    """The state to resume from, on the CPU; None if there is none.

    Raises:
        UserError: the checkpoint is damaged, or was written under another key.
    """
    import torch

    path = path_of(folder, key)
    try:
        header, content = path.read_bytes().split(b"\n", 1)
        about = strict_json.loads(header)
        if (about["key"], about["sha256"]) != (key, hashlib.sha256(content).hexdigest()):
            raise unusable(path, "its key or checksum differs")
        # What is damaged never gets here, where a wrong size could ask for all memory.
        state = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
        if about["step"] != _step(state):
            raise unusable(path, "its step differs")
    except FileNotFoundError:
        return None
    except (UserError, OSError, MemoryError):  # the last two may pass
        raise
    except Exception as error:  # torch and pickle raise whatever a foreign file leads them to
        raise unusable(path, error) from None
    return state


def steps(folder: Path) -> dict[str, int]:
    """The steps up to which the checkpoints in a run's folder go, by their keys, as their headers say it."""
    by_key: dict[str, int] = {}
    for path in (folder / FOLDER).glob("*.pt"):
        try:
            with path.open("rb") as file:
                about = strict_json.loads(file.readline())
            by_key[str(about["key"])] = int(about["step"])
        except (OSError, ValueError, LookupError, TypeError):
            continue  # it is being replaced, or of an older version
    return by_key


def _step(state: dict[str, Any]) -> int:
    step = state.get("step")
    return step if isinstance(step, int) else 0


def unusable(path: Path, why: object) -> UserError:
    """The error of a checkpoint from which its run cannot resume."""
    return UserError(f"{path}: not a whole checkpoint of this run ({short(str(why) or repr(why))})")


def set_aside(path: Path) -> Path:
    """Rename a checkpoint, so that its run starts from the beginning; where it is then."""
    return path.replace(path.with_suffix(".damaged"))


def others(folder: Path, key: str) -> bool:
    """Whether there are checkpoints of this run under other keys."""
    return any(path != path_of(folder, key) for path in (folder / FOLDER).glob("*.pt"))


def clear(folder: Path) -> None:
    """Delete all checkpoints of a run that has its record, so that a rerun starts from the beginning."""
    for kind in ("*.pt", "*.csv", "*.damaged"):
        for path in (folder / FOLDER).glob(kind):
            path.unlink()
