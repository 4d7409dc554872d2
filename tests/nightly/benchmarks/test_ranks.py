"""`ketscale bench ranks`: the same losses on one rank and on several, and what is compared with what."""

import os

from benchmarks import ranks
from benchmarks.ranks import ALONE, Ranks
from benchmarks.steps import ModelCase


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
    times = {"communication_s": 1e-4, "wait_s": 1e-5, "library_s": 9e-5}
    defaults = {"loss": 2.3, "gradient_bytes": 8, "library": "toy", **times}
    steps = {ALONE: iter([1.0, 4.0, 2.0]), "mpi-n1r2t1": iter([0.5, 1.0, 2.0])}
    monkeypatch.setattr(
        ranks, "_started", lambda case, layout, repeats: {"step_s": next(steps[layout]), **defaults}
    )
    rows = Ranks(backends=("mpi",)).measure(ModelCase("vqc", 4, 64))
    assert [row["speedup"] for row in rows] == [1.0, 2.0]
    assert rows[0]["median_s"] == 2.0 and rows[1]["median_s"] == 1.0
    assert rows[0]["iqr_s"] == 1.5 and rows[0]["repeats"] == 3
