"""`ketscale bench ranks`: the same losses on one rank and on several, and what is compared with what."""

import os

from benchmarks import output, ranks
from benchmarks.ranks import ALONE, Ranks
from benchmarks.steps import ModelCase

CASE = ModelCase("vqc", 4, 64)


def result(step_s, **other):
    times = {"communication_s": 1e-4, "wait_s": 1e-5, "library_s": 9e-5}
    return {"step_s": step_s, "loss": 2.3, "gradient_bytes": 8, "library": "toy", **times, **other}


def measured(monkeypatch, answers):
    """The rows of a cell whose processes give these answers, layout by layout and start by start."""
    waiting = {layout: iter(given) for layout, given in answers.items()}
    monkeypatch.setattr(ranks, "_started", lambda case, layout, repeats: next(waiting[layout]))
    return Ranks(backends=("mpi",)).measure(CASE)


def test_ranks_compute_the_loss_of_one_rank(monkeypatch):
    """Real processes, from an environment that is not activated. Times are of no interest: each layout starts once."""
    monkeypatch.setattr(ranks, "ROUNDS", 1)
    monkeypatch.setenv("PATH", os.defpath)
    rows = Ranks(models=("mlp",), batch=(8,), repeats=5).run()["rows"]
    assert [row["layout"] for row in rows] == [ALONE, "ddp-cpu-n1r2t1", "mpi-n1r2t1"]
    for row in rows:
        assert row["status"] == "timed", row["reason"]
        assert row["gradient_bytes"] == 4 * (
            512 * 128 + 128 + 128 * 32 + 32 + 32 * 4 + 4 + 16 + 4 * 16 + 16 + 16 * 10 + 10
        )
        assert (row["communication_s"] > 0) == (row["layout"] != ALONE)


def test_each_start_is_compared_with_the_one_rank_before_it(monkeypatch):
    rows = measured(
        monkeypatch,
        {
            ALONE: [result(1.0), result(4.0), result(2.0)],
            "mpi-n1r2t1": [result(0.5), result(1.0), result(2.0)],
        },
    )
    assert [row["speedup"] for row in rows] == [1.0, 2.0]
    assert rows[0]["median_s"] == 2.0 and rows[1]["median_s"] == 1.0
    assert rows[0]["iqr_s"] == 1.5 and rows[0]["repeats"] == 3


def test_ranks_with_another_loss_are_not_timed(monkeypatch):
    wrong = [result(0.5, loss=2.31)] * 3
    _, row = measured(monkeypatch, {ALONE: [result(1.0)] * 3, "mpi-n1r2t1": wrong})
    assert row["status"] == "parity failed" and row["median_s"] is None
    assert row["reason"] == "loss 2.31, on one rank 2.3"


def test_a_layout_that_fails_says_why(monkeypatch):
    rows = measured(
        monkeypatch, {ALONE: [result(1.0)] * 3, "mpi-n1r2t1": [result(0.5), "no slots", result(0.5)]}
    )
    assert rows[1]["status"] == "failed"
    assert output.line(Ranks, CASE, rows) == "vqc 4q x 64: cpu-n1r1t1 1 s  mpi-n1r2t1 failed (no slots)"
    assert "| vqc | 4 | 64 | mpi-n1r2t1 | failed: no slots |" in "\n".join(Ranks.table(rows))
