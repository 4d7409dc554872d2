"""A history is appended to, a checkpoint has none of it, and a resumption cuts it where the checkpoint was written."""

import csv
import hashlib
import os

import pytest

from ketscale.errors import UserError
from ketscale.files import write_csv
from ketscale.jobs import started
from ketscale.jobs.locks import Lock
from ketscale.training import checkpoint
from ketscale.training.history import History
from tests import record_maker as maker
from tests.toys import classification, trainer


def rows(count, first=0):
    return [{"epoch": n, "step": 3 * n, "loss": 1 / (n + 1), "auc": None} for n in range(first, count)]


def filled(path, count, first=0):
    history = History(path)
    for row in rows(count, first):
        history.append(row)
    return history


def steps(path):
    with path.open(newline="") as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


def test_the_file_is_the_table_of_its_rows(tmp_path):
    history = filled(tmp_path / "rows.csv", 40)
    assert len(history) == 40
    digest = history.finish(tmp_path / "history.csv")
    write_csv(tmp_path / "expected.csv", rows(40), list(rows(1)[0]))
    assert (tmp_path / "history.csv").read_bytes() == (tmp_path / "expected.csv").read_bytes()
    assert digest == hashlib.sha256((tmp_path / "history.csv").read_bytes()).hexdigest()


@pytest.mark.parametrize("path", [None, "rows.csv"])
def test_without_rows_it_is_a_header(tmp_path, path):
    digest = History(path and tmp_path / path).finish(tmp_path / "history.csv")
    assert (tmp_path / "history.csv").read_text() == "epoch,step\n"
    assert digest == hashlib.sha256(b"epoch,step\n").hexdigest()


def test_rows_are_appended_to_one_file(tmp_path):
    """What was written once is never written again: the file and its first bytes stay, and only new rows come."""
    path = tmp_path / "rows.csv"
    history = filled(path, 5)
    history.state()
    before, number = path.read_bytes(), path.stat().st_ino
    for row in rows(9, 5):
        history.append(row)
    waiting = len(history._waiting)
    history.state()
    after = path.read_bytes()
    assert after.startswith(before) and path.stat().st_ino == number
    assert waiting == len(after) - len(before) > 0


def test_a_resumption_cuts_what_came_after_its_checkpoint(tmp_path):
    path = tmp_path / "rows.csv"
    history = filled(path, 12)
    state = history.state()
    for row in rows(17, 12):
        history.append(row)
    resumed = History(path)
    resumed.restore(state)
    assert len(resumed) == 12
    for row in rows(20, 12):
        resumed.append(row)
    assert resumed.finish(tmp_path / "a.csv") == filled(tmp_path / "whole.csv", 20).finish(tmp_path / "b.csv")
    assert steps(tmp_path / "a.csv") == [3 * n for n in range(20)]


def test_it_goes_on_in_the_file_that_it_began(tmp_path):
    """A cohort that goes on without some of its runs has another key."""
    history = filled(tmp_path / "many.csv", 3)
    resumed = History(tmp_path / "few.csv")
    resumed.restore(history.state())
    resumed.append(rows(4)[3])
    resumed.finish(tmp_path / "history.csv")
    assert steps(tmp_path / "history.csv") == [0, 3, 6, 9]
    assert not (tmp_path / "few.csv").exists()


def edit(path):
    path.write_bytes(path.read_bytes().replace(b"3", b"4", 1))


@pytest.mark.parametrize("damage, message", [(os.unlink, "missing"), (edit, "damaged")])
def test_a_history_that_was_tampered_with_is_refused(tmp_path, damage, message):
    path = tmp_path / "rows.csv"
    history = filled(path, 3)
    state = history.state()
    damage(path)
    with pytest.raises(UserError, match=f"{path}: is {message}"):
        History(path).restore(state)


def test_a_run_without_its_history_does_not_go_on(tmp_path):
    """As a run's own session says it: which file is missing; the next start begins anew."""
    config = maker.config(one=maker.study(seed=0))
    run = started.ActiveRun(config.settings(config.runs[0]), tmp_path, Lock(tmp_path), None)
    path = checkpoint.history_of(tmp_path, run.key)
    loop = trainer(classification(), {"epochs": 3}, history=History(path))
    loop.run()
    checkpoint.save(tmp_path, run.key, {**loop.state(), "resumed": 0})
    path.unlink()
    other = trainer(classification(), {"epochs": 3}, history=History(path))
    with pytest.raises(UserError, match=f"{path}: is missing.*put aside: run it again"):
        run._resume(other, other.world)
    assert checkpoint.load(tmp_path, run.key) is None


def test_a_run_that_starts_anew_says_whose_checkpoint_is_of_no_use_and_forgets_its_rows(tmp_path, capsys):
    config = maker.config(one=maker.study(seed=0))
    loop = trainer(classification(), {"epochs": 3})
    run = started.ActiveRun(config.settings(config.runs[0]), tmp_path, Lock(tmp_path), None, trainer=loop)
    for other in (False, True):
        filled(checkpoint.history_of(tmp_path, run.key), 3).state()
        if other:
            checkpoint.save(tmp_path, "b" * 64, {})
        run._resume(loop, loop.world)
        assert capsys.readouterr().err.count("starting from the beginning") == other
        assert not checkpoint.history_of(tmp_path, run.key).exists()
    assert checkpoint.load(tmp_path, "b" * 64) == {}
