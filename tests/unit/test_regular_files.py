"""A folder in the place of a file, or a pipe, is said in a line by whatever reads it: nothing waits for a pipe."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ketscale import files
from ketscale.config import load as load_config
from ketscale.errors import UserError, in_words
from ketscale.jobs import prepared
from ketscale.measure import record
from ketscale.problems import arrays, library, store
from ketscale.problems.images import idx
from ketscale.problems.sentences import sentences
from ketscale.training import checkpoint
from tests.own_files import NETWORK, loaded, pictures


def in_images(path: Path) -> Any:
    """Read a folder of images in which the file is one."""
    pictures(path.parent / "folder")
    path.rename(path.parent / "folder/day/0.png")
    return loaded({"kind": "image-folder", "folder": str(path.parent / "folder"), **NETWORK})


# Readers of files that a user gives, or that lie in a folder of results, with the name that the file has there.
READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "config": ("config.yaml", load_config),
    "npz": ("x.npz", lambda p: arrays.read_npz(p, {"x": ("x",)})),
    "idx": ("x", idx.read),
    "image folder": ("x.png", in_images),
    "text": ("text.txt", sentences.read),
    "model": ("model.safetensors", library.load),
    "prepared": ("features.json", lambda p: store.opened(p, (), 1)),
    "source": ("x.npz", lambda p: prepared.digest([p], p.parent / "features.json")),
    "checkpoint": ("ab.pt", lambda p: checkpoint.load(p.parent.parent, "ab")),
    "settings": ("x.npz", lambda p: loaded({"kind": "arrays", "file": str(p)})),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_refuses_what_is_no_file(reader: str, tmp_path: Path) -> None:
    name, read = READERS[reader]
    path = tmp_path / "checkpoint" / name
    path.mkdir(parents=True)
    with pytest.raises((UserError, OSError)) as raised:
        read(path)
    said = in_words(raised.value)
    assert said is not None and len(said.splitlines()) <= 2


def test_nothing_waits_for_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where it takes the file's place after the first look."""
    os.mkfifo(tmp_path / "metrics.json")
    assert record.read(tmp_path / "metrics.json").state == "refused"
    monkeypatch.setattr(files, "require_regular", lambda path: None)
    with pytest.raises(OSError, match="is a pipe, not a regular file"):
        files.opened(tmp_path / "metrics.json")
