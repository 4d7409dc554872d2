"""Checkpoints are whole or absent, checked before use, and keyed by the run's settings."""

import os
import signal
import time

import pytest
import torch

from ketscale.errors import UserError
from ketscale.files import write_atomic
from ketscale.training import checkpoint

HASH, OTHER = "a" * 64, "b" * 64


def test_round_trip_keeps_bits_and_other_settings_have_none(tmp_path):
    assert checkpoint.load(tmp_path, HASH) is None
    state = {"x": torch.randn(5, dtype=torch.float64), "step": 3, "rows": [{"a": 1.0}]}
    checkpoint.save(tmp_path, HASH, state)
    loaded = checkpoint.load(tmp_path, HASH)
    assert torch.equal(loaded["x"], state["x"]) and loaded["rows"] == state["rows"]
    assert os.listdir(tmp_path / "checkpoint") == [f"{HASH[:16]}.pt"]
    assert checkpoint.load(tmp_path, OTHER) is None


def test_a_checkpoint_in_the_place_of_another_is_refused(tmp_path):
    """Other damage: `tests/property/test_records.py`."""
    checkpoint.save(tmp_path, HASH, {"step": 1})
    path = checkpoint.path_of(tmp_path, HASH)
    path.write_bytes(path.read_bytes().replace(b"a" * 64, b"b" * 64, 1))
    with pytest.raises(UserError, match="key or checksum differs"):
        checkpoint.load(tmp_path, HASH)


def write_on(folder, pipe):
    """Checkpoints and records of one number each, and that number to the pipe when both are written."""
    for step in range(10**6):
        checkpoint.save(folder, HASH, {"step": step, "x": torch.full((200_000,), float(step))})
        write_atomic(folder / "metrics.json", (b"%d" % (step % 10)) * 300_000)
        os.write(pipe, b"%d\n" % step)


def test_kill_9_while_writing_leaves_whole_files(tmp_path):
    for delay in (0.0, 0.011, 0.023):
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            try:
                torch.set_num_threads(1)  # of others it would wait for those of its parent
                write_on(tmp_path, writing)
            finally:
                os._exit(1)
        os.close(writing)
        with open(reading) as steps:
            for _ in range(3):
                steps.readline()
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            written = int((["2", *steps.read().split()])[-1])
        state = checkpoint.load(tmp_path, HASH)
        assert state["step"] in (written, written + 1)
        assert torch.equal(state["x"], torch.full((200_000,), float(state["step"])))
        record = (tmp_path / "metrics.json").read_bytes()
        assert len(record) == 300_000 and len(set(record)) == 1
