"""Checkpoints are whole or absent, checked before use, and keyed by the run's settings."""

import hashlib
import io
import json
import os
import subprocess
import sys
import time

import pytest
import torch

from ketscale.errors import UserError
from ketscale.training import checkpoint

HASH, OTHER = "a" * 64, "b" * 64


def saved(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def test_round_trip_keeps_bits(tmp_path):
    state = {"x": torch.randn(5, dtype=torch.float64), "step": 3, "rows": [{"a": 1.0}]}
    checkpoint.save(tmp_path, HASH, state)
    loaded = checkpoint.load(tmp_path, HASH)
    assert torch.equal(loaded["x"], state["x"]) and loaded["rows"] == state["rows"]
    assert os.listdir(tmp_path / "checkpoint") == [f"{HASH[:16]}.pt"]


def test_none_when_absent_or_of_other_settings(tmp_path):
    assert checkpoint.load(tmp_path, HASH) is None
    checkpoint.save(tmp_path, HASH, {"step": 1})
    assert checkpoint.load(tmp_path, OTHER) is None


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda data: data[:-5] + b"abcde", "checksum"),
        (lambda data: data[: len(data) // 2], "checksum"),
        (lambda data: b"garbage", "not a checkpoint"),
        (lambda data: b"3\nxyz", "not a checkpoint"),
        (lambda data: data.replace(b"a" * 64, b"b" * 64, 1), "other settings"),
    ],
)
def test_damage_is_an_error_that_names_the_file(tmp_path, damage, message):
    checkpoint.save(tmp_path, HASH, {"step": 1})
    path = checkpoint.path_of(tmp_path, HASH)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=message) as error:
        checkpoint.load(tmp_path, HASH)
    assert path.name in str(error.value)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x80\x04.", saved([1]), saved(torch.ones(2))[:-30]])
def test_garbage_with_a_right_sum_is_an_error_that_names_the_file(tmp_path, content):
    path = checkpoint.path_of(tmp_path, HASH)
    path.parent.mkdir()
    header = {"key": HASH, "sha256": hashlib.sha256(content).hexdigest()}
    path.write_bytes(json.dumps(header).encode() + b"\n" + content)
    with pytest.raises(UserError, match="not a checkpoint of this run") as error:
        checkpoint.load(tmp_path, HASH)
    assert path.name in str(error.value) and "\n" not in str(error.value)


def test_code_in_a_checkpoint_is_not_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    checkpoint.save(tmp_path, HASH, {"step": Evil()})
    with pytest.raises(UserError, match=r"(?i)weights"):
        checkpoint.load(tmp_path, HASH)
    assert not (tmp_path / "executed").exists()


WRITER = """
import sys, torch
from pathlib import Path
from ketscale.training import checkpoint
from ketscale.files import write_atomic
for step in range(10**6):
    checkpoint.save(Path(sys.argv[1]), "a" * 64, {"step": step, "x": torch.full((200_000,), float(step))})
    write_atomic(Path(sys.argv[1]) / "metrics.json", (b"%d" % (step % 10)) * 300_000)
    print(step, flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.011, 0.023])
def test_kill_9_while_writing_leaves_whole_files(tmp_path, delay):
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        for _ in range(3):
            written = int(writer.stdout.readline())
        time.sleep(delay)
        writer.kill()
        written = int(([str(written), *writer.stdout.read().split()])[-1])
    state = checkpoint.load(tmp_path, HASH)
    assert state["step"] in (written, written + 1)
    assert torch.equal(state["x"], torch.full((200_000,), float(state["step"])))
    record = (tmp_path / "metrics.json").read_bytes()
    assert len(record) == 300_000 and len(set(record)) == 1
