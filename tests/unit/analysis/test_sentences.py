"""Sentences of studies of speed: what is said of records whose truth is known, and that every sentence keeps its limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale.analysis import verdicts
from ketscale.analysis.kinds.kind import Answer
from ketscale.grid import Run
from tests import records_factory as factory
from tests.sentences import answers_of, faults

LAYOUTS = ["cpu-n1r1t1", "mpi-n1r2t1", "mpi-n1r4t1"]
FIVE = [0, 1, 2, 3, 4]


def study(kind: str, points: list[dict[str, Any]] | None = None, **axes: Any) -> dict[str, Any]:
    """One study of this kind."""
    block = {
        "kind": kind,
        "question": "Does it pay?",
        "axes": factory.point(**{"simulator": "fused", **axes}),
    }
    return {"asked": {**block, **({"points": points} if points else {})}}


def said(results: Path, studies: Mapping[str, Any], change: factory.Change) -> Answer:
    """The answer of a config's first study, which keeps the limits of sentences."""
    config = factory.small_config(studies)
    factory.write_all(config, results, change)
    answer = next(iter(answers_of(config, results).values()))
    assert not faults(answer)
    return answer


def noisy(*typical: float, share: float = 0.05) -> Callable[[int, int], float]:
    """The time of a layout and a seed: the layout's own, with noise of this share that is drawn once and for all."""
    noise = np.exp(np.random.default_rng(7).normal(0.0, share, (len(typical), 50)))
    return lambda layout, seed: float(typical[layout] * noise[int(layout), seed])


# Doctored records with a known truth, and the verdict.
TRUE_3_PERCENT, TRUE_50_PERCENT = noisy(1.0, 1 / 1.03), noisy(1.0, 1 / 1.5)
TWO = study("strong", backend=LAYOUTS[:2], seed=FIVE)
SAID: dict[str, tuple[dict[str, Any], factory.Change, str]] = {
    "a true gain of 50 % in noise of 5 %": (
        TWO,
        lambda run: {"step_s": TRUE_50_PERCENT(run.ranks > 1, run.seed)},
        verdicts.PAYS,
    ),
    "three of five seeds diverged": (
        TWO,
        lambda run: {"step_s": 1 / run.ranks} | ({"status": "diverged"} if run.ranks > 1 and run.seed > 1 else {}),
        verdicts.FAILED,
    ),
    "nothing finished": (
        TWO,
        lambda run: None,
        verdicts.OPEN,
    ),
    "every size has its own best layout": (
        study("strong", backend=LAYOUTS, qubits=[4, 6]),
        lambda run: {"step_s": {"q4": {1: 1.0, 2: 0.5, 4: 2.0}, "q6": {1: 4.0, 2: 2.5, 4: 1.0}}[run.size[:2]][run.ranks]},
        verdicts.PAYS,
    ),
    "the best point is undecided, and another surely does not pay": (
        study("strong", backend=LAYOUTS),
        lambda run: {"step_s": {1: 1.0, 2: 1.05, 4: 3.0}[run.ranks]}
        | ({"quiet": factory.BUSY} if run.ranks == 2 and run.seed else {}),
        verdicts.FEW,
    ),
    "nothing is decided, and the best is of a busy machine": (
        study("strong", backend=LAYOUTS, seed=FIVE[:4]),
        lambda run: {"step_s": {1: 1.0, 2: 1 / 1.31, 4: 1 / 1.44}[run.ranks]}
        | ({"quiet": factory.BUSY} if run.ranks == 4 or (run.ranks == 2 and run.seed) else {}),
        verdicts.DISTURBED,
    ),
    "weak scaling": (
        study("weak", [{"batch": 32, "backend": "cpu-n1r1t1"}, {"batch": 128, "backend": "mpi-n1r4t1"}]),
        lambda run: {"step_s": 1.0 if run.ranks == 1 else 1.25},
        verdicts.PAYS,
    ),
    "simulators": (
        study("simulator", simulator=["fused", "default.qubit", "lightning.qubit"], qubits=[4, 6]),
        lambda run: {
            "step_s": {"fused": 0.1, "default.qubit": 0.3, "lightning.qubit": 1.2}[run.simulator]
            * (0.5 if run.size.startswith("q6") and run.simulator == "fused" else 1)
        },
        verdicts.SLOWER,
    ),
    "simulators that win at one size each, of which one may be noise": (
        study("simulator", simulator=["fused", "default.qubit"], qubits=[4, 6], seed=FIVE),
        lambda run: {
            "step_s": TRUE_3_PERCENT(run.simulator != "fused", run.seed)
            if run.size.startswith("q4")
            else {"fused": 1.0, "default.qubit": 2.0}[run.simulator]
        },
        verdicts.NO_LOSS,
    ),
    "simulators within the noise": (
        study("simulator", simulator=["fused", "default.qubit"], seed=FIVE),
        lambda run: {"step_s": TRUE_3_PERCENT(run.simulator == "fused", run.seed)},
        verdicts.NO_LOSS,
    ),
    "one simulator times out": (
        study("simulator", simulator=["fused", "default.qubit", "qiskit"]),
        lambda run: {"step_s": {"fused": 1e-3, "default.qubit": 5e-3, "qiskit": 9.0}[run.simulator]}
        | ({"status": "timed_out", "reason": "its time was over"} if run.simulator == "qiskit" else {}),
        verdicts.SLOWER,
    ),
    "a straight line": (
        study("qubits", qubits=[2, 4, 6, 8]),
        lambda run: {"step_s": 0.2 * int(run.size[1])},
        verdicts.ABOUT,
    ),
    "anything from a hundredth to 25 times": (
        study("qubits", qubits=[2, 8]),
        lambda run: {"step_s": [0.3, 2.0, 9.0][run.seed] if run.size.startswith("q8") else 1.0},
        verdicts.UNDECIDED,
    ),
    "an exponential": (
        study("qubits", qubits=[2, 4, 6, 8]),
        lambda run: {"step_s": 0.001 * 3.0 ** int(run.size[1])},
        verdicts.MORE_THAN,
    ),
    "a larger batch": (
        study("batch", batch=[16, 64]),
        lambda run: {"step_s": {16: 1.0, 64: 2.0}[run.batch]},
        verdicts.PAYS,
    ),
    "a larger batch that costs": (
        study("batch", batch=[16, 64]),
        lambda run: {"step_s": {16: 1.0, 64: 8.0}[run.batch]},
        verdicts.PAYS_NOT,
    ),
    "parity that does not hold": (
        study("parity", backend=LAYOUTS[:2], protocol="parity", seed=0),
        lambda run: {"losses": [2.3 * 0.9**step * (1 + 1e-4 * (run.ranks > 1)) for step in range(20)]},
        verdicts.NOT_HELD,
    ),
    "parity that holds": (
        study("parity", backend=LAYOUTS, protocol="parity", seed=0),
        lambda run: {"losses": [2.3 * 0.9**step for step in range(20)]},
        verdicts.HELD,
    ),
}  # fmt: skip


@pytest.mark.parametrize("truth", SAID)
def test_what_is_said_follows_from_what_is_known(truth: str, tmp_path: Path) -> None:
    studies, change, verdict = SAID[truth]
    assert said(tmp_path, studies, change).verdict == verdict


def test_a_row_for_each_point_says_its_step_and_what_was_left_out(tmp_path: Path) -> None:
    def change(run: Run) -> dict[str, Any]:
        if run.ranks == 4:
            return {"step_s": 0.1, "quiet": factory.BUSY}
        failed = run.ranks == 2 and run.seed == 3
        return {"step_s": 0.064 / run.ranks, **({"status": "diverged"} if failed else {})}

    answer = said(tmp_path, study("strong", backend=LAYOUTS, seed=[0, 1, 2, 3]), change)
    alone, two, four = answer.rows
    assert (alone.point, alone.beside, alone.effect, alone.verdict) == ("one core", "", None, "")
    assert (two.point, two.beside, two.unit, two.verdict) == (
        "two MPI ranks",
        "one core",
        "times as fast",
        "pays",
    )
    # 64 images in 32 ms on two cores are one core-second for a thousand, as on one core.
    assert dict(two.more) == {
        "step": "32 ms", "core-seconds for 1,000 images": "1", "efficiency": "100 %",
        "over best serial": "2 times as fast", "left out": "1 failed",
    }  # fmt: skip
    assert two.effect and two.effect.value == pytest.approx(2.0) and two.effect.n == 3
    # A quiet layout leads, though the busy one seems faster.
    assert four.verdict == verdicts.DISTURBED and four.effect and four.effect.n == 4
    assert "left out" not in four.more, "all of them are in its median"
    assert answer.effect == two.effect and answer.of == "speed of a step with two MPI ranks beside one core"
