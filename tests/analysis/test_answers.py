"""The answer of every study: right on rows whose truth is known, and one for every kind and every ready-made study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ketscale import analysis
from ketscale.analysis import answers, intervals, verdicts
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.wording import where
from ketscale.config import Config
from ketscale.grid import Run
from tests import records_factory as factory
from tests.ready_made import WHOLE
from tests.record_maker import beside

BUSY = beside(others_share=0.4)
Times = Callable[[Run], float]


def study(kind: str, points: list[dict[str, Any]] | None = None, **axes: Any) -> dict[str, Any]:
    """One study of this kind."""
    block = {"kind": kind, "question": "Does it pay?", "axes": factory.point(simulator="fused", **axes)}
    return {"asked": {**block, **({"points": points} if points else {})}}


def answered(config: Config, results: Path, change: factory.Change) -> pd.DataFrame:
    """The rows of answers.csv, by study."""
    factory.write_all(config, results, change)
    factory.collect(factory.partial(config), results)
    return pd.read_csv(results / "tables/answers.csv").set_index("study")


def one(results: Path, studies: Mapping[str, Any], change: factory.Change) -> pd.Series:
    """The answer of a config's first study."""
    return answered(factory.small_config(studies), results, change).iloc[0]


def noisy(*times: float, share: float = 0.05) -> Callable[[int, int], float]:
    """The time of a layout and a seed: the layout's own, with noise of this share that is drawn once and for all."""
    noise = np.exp(np.random.default_rng(7).normal(0.0, share, (len(times), 50)))
    return lambda layout, seed: float(times[layout] * noise[int(layout), seed])


LAYOUTS = ["cpu-n1r1t1", "mpi-n1r2t1", "mpi-n1r4t1"]


# Verdicts


@pytest.mark.parametrize(
    ("low", "high", "n", "flag", "verdict"),
    [
        (1.06, 1.2, 3, "", verdicts.PAYS),
        (1.05, 1.2, 3, "", verdicts.NO_GAIN),
        (0.98, 1.2, 3, "", verdicts.NO_GAIN),
        (1.01, 1.04, 3, "", verdicts.NO_GAIN),
        (0.8, 1.0, 3, "", verdicts.PAYS_NOT),
        (0.8, 1.01, 3, "", verdicts.NO_GAIN),
        (None, None, 2, "", verdicts.FEW),
        (1.5, 1.7, 3, "busy", verdicts.DISTURBED),
        (1.5, 1.7, 3, "busy reference", verdicts.DISTURBED),
        (1.5, 1.7, 3, float("nan"), verdicts.PAYS),
    ],
)
def test_the_whole_interval_decides(low: Any, high: Any, n: int, flag: Any, verdict: str) -> None:
    assert verdicts.gain(Estimate(1.1, low, high, n), flag) == verdict
    assert verdict in verdicts.CLAUSES


def test_a_gain_of_3_percent_in_noise_of_5_percent_seldom_pays() -> None:
    """Below 1.05 it must not pay; the 95 % interval allows at most 2.5 % of errors on that side."""
    draws = np.exp(np.random.default_rng(1).normal(np.log(1.03), 0.05, (2_000, 5)))
    judged = [verdicts.gain(intervals.ratio(list(ratios))) for ratios in draws]
    assert judged.count(verdicts.PAYS) <= 0.025 * len(judged)


@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_of_several_comparisons_hold_together(seeds: int) -> None:
    """Of 10 comparisons the plain intervals all hold in 60 %, the widened ones in at least 95 %."""
    generator, together, alone = np.random.default_rng(2), 0, 0
    for _ in range(400):
        found = [intervals.ratio(list(ratios)) for ratios in np.exp(generator.normal(0.2, 0.05, (10, seeds)))]
        wide = [verdicts.together(each, len(found)) for each in found]
        alone += all(each.low <= np.exp(0.2) <= each.high for each in found)
        together += all(each.low <= np.exp(0.2) <= each.high for each in wide)
    assert together >= 0.93 * 400 and alone < 0.75 * 400


def test_a_widened_difference_is_that_of_bonferroni() -> None:
    """t quantiles for 2 degrees of freedom: 4.3027 at 97.5 %, 6.2053 at 98.75 % (two comparisons)."""
    found = verdicts.together(Estimate(1.0, 1.0 - 4.302653, 1.0 + 4.302653, 3), 2, of_ratio=False)
    assert (found.low, found.high) == pytest.approx((1.0 - 6.205347, 1.0 + 6.205347), rel=1e-6)


def test_layouts_have_names() -> None:
    names = {
        "cpu-n1r1t1": "one core", "cpu-n1r1t4": "4 threads", "gpu-n1r1t1": "one GPU", "mpi-n1r1t1": "1 MPI rank",
        "mpi-n2r2t1": "2 MPI ranks on 2 nodes", "mpi-n1r2t3": "2 MPI ranks of 3 threads", "ddp-n1r4t1": "4 GPUs (DDP)",
    }  # fmt: skip
    assert {text: where(text) for text in names} == names


# Strong and weak scaling


def test_a_gain_within_the_noise_is_no_clear_gain(tmp_path: Path) -> None:
    time = noisy(1.0, 1 / 1.03)
    found = one(
        tmp_path,
        study("strong", backend=LAYOUTS[:2], seed=[0, 1, 2, 3, 4]),
        lambda run: {"step_s": time(run.ranks > 1, run.seed)},
    )
    assert (
        found["verdict"] == "no clear gain"
        and "no clear gain" in found["answer"]
        and "it pays" not in found["answer"]
    )
    assert found["low"] < 1.03 < found["high"] and found["n"] == 5


def test_ranks_of_one_and_four_are_enough(tmp_path: Path) -> None:
    found = one(
        tmp_path,
        study("strong", backend=["cpu-n1r1t1", "mpi-n1r4t1"]),
        lambda run: {"step_s": 0.064 / (1 if run.ranks == 1 else 3.2) * (0.9 + 0.1 * run.seed)},
    )
    # 64 images in 20 ms on four cores are 1.25 core-seconds for a thousand, beside 1 on one core.
    assert found["answer"] == (
        "For vqc on digits (4 qubits, 3 circuit layers, batch 64, fused): 4 MPI ranks make a step 3.2 times as fast as one "
        "core (95 % interval 3.16 to 3.24, 3 seeds): it pays, at an efficiency of 80 %, so 1,000 images cost 1.25 "
        "core-seconds, 1.25 times as many as alone."
    )
    assert (found["effect"], found["verdict"]) == (pytest.approx(3.2), "pays")


def test_every_size_has_its_own_best_layout(tmp_path: Path) -> None:
    best = {4: {1: 1.0, 2: 0.5, 4: 0.8}, 6: {1: 4.0, 2: 2.5, 4: 1.0}}
    found = one(
        tmp_path,
        study("strong", backend=LAYOUTS, qubits=[4, 6]),
        lambda run: {"step_s": best[int(run.size[1])][run.ranks] * (1 + 0.1 * run.seed)},
    )
    assert "with 4 qubits, 2 MPI ranks make a step 2 times as fast" in found["answer"]
    assert "with 6 qubits, 4 MPI ranks make a step 4 times as fast" in found["answer"]
    assert "The intervals of 4 comparisons are widened to hold together" in found["answer"]
    assert found["of"] == "gain of 4 MPI ranks over one core" and found["effect"] == pytest.approx(4.0)


def test_every_model_of_a_study_is_named(tmp_path: Path) -> None:
    models = ["hydra", "mamba", "hydra_hybrid"]
    speedup = dict(zip(models, (0.5, 1.5, 2.0), strict=True))
    found = one(
        tmp_path,
        study("strong", workload="eeg-synthetic", model=models, backend=LAYOUTS[:2]),
        lambda run: {"step_s": (1.0 if run.ranks == 1 else 1 / speedup[run.model]) * (1 + 0.1 * run.seed)},
    )
    assert "with hydra, 2 MPI ranks make a step 0.5 times as fast as one core" in found["answer"]
    assert "it does not pay" in found["answer"].split("with mamba")[0]
    assert all(f"with {model}, 2 MPI ranks" in found["answer"] for model in models)


def test_one_seed_decides_nothing(tmp_path: Path) -> None:
    found = one(tmp_path, study("strong", backend=LAYOUTS[:2], seed=0), lambda run: {"step_s": 1 / run.ranks})
    assert found["verdict"] == "undecided: fewer than 3 seeds" and pd.isna(found["low"])
    assert "(one seed, no interval): undecided, with fewer than 3 seeds" in found["answer"]


def test_busy_and_failed_points_are_cautioned_and_a_quiet_one_leads(tmp_path: Path) -> None:
    def change(run: Run) -> dict[str, Any]:
        if run.ranks == 4:
            return {"step_s": 0.1, "quiet": BUSY}
        failed = run.ranks == 2 and run.seed == 3
        return {"step_s": 1 / run.ranks, **({"status": "diverged"} if failed else {})}

    found = one(tmp_path, study("strong", backend=LAYOUTS, seed=[0, 1, 2, 3]), change)
    assert "2 MPI ranks make a step 2 times as fast" in found["answer"] and found["n"] == 3
    assert found["answer"].endswith(
        "Careful: of 12 runs, 1 diverged; 1 of 3 points were timed on a machine with other work (busy)."
    )


def test_a_gain_of_a_busy_machine_is_undecided(tmp_path: Path) -> None:
    found = one(
        tmp_path, study("strong", backend=LAYOUTS[:2]), lambda run: {"step_s": 1 / run.ranks, "quiet": BUSY}
    )
    assert found["verdict"] == "undecided: busy machine"


def test_weak_scaling_has_the_efficiency_and_the_cost_of_equal_work(tmp_path: Path) -> None:
    points = [{"batch": 32, "backend": "cpu-n1r1t1"}, {"batch": 128, "backend": "mpi-n1r4t1"}]
    found = one(tmp_path, study("weak", points), lambda run: {"step_s": 1.0 if run.ranks == 1 else 1.25})
    assert "4 MPI ranks do 3.2 times the work of one core in the same time" in found["answer"]
    assert "at an efficiency of 80 %, so the same work costs 1.25 times the core-seconds" in found["answer"]


def test_a_gpu_is_compared_with_cores(tmp_path: Path) -> None:
    time = {"cpu-n1r1t1": 1.0, "cpu-n1r1t4": 0.4, "gpu-n1r1t1": 0.01}
    found = one(tmp_path, study("strong", backend=list(time)), lambda run: {"step_s": time[run.layout]})
    assert "The fastest step of each device (median): one GPU 10 ms and 4 threads 400 ms." in found["answer"]


# Break-even


def breaks_even(results: Path, talk_s: float, **axes: Any) -> pd.Series:
    """A step of batch * 2 ms on one rank; on two half of that and `talk_s` of talking."""

    def change(run: Run) -> dict[str, Any]:
        alone = 0.002 * run.batch
        return {"step_s": alone if run.ranks == 1 else alone / 2 + talk_s}

    batches = {"batch": [1, 2, 4, 8], "backend": LAYOUTS[:2], **axes}
    return one(results, study("break-even", **batches), change)


def test_break_even_is_between_two_points(tmp_path: Path) -> None:
    found = breaks_even(tmp_path, 0.003)
    # Equal at batch 3: 3 ms of work per rank; the crossing is interpolated between 2 and 4 ms.
    assert 0.002 < found["effect"] < 0.004 and found["verdict"] == "pays"
    # The points on both sides are no interval over seeds.
    assert pd.isna(found["low"]) and pd.isna(found["high"])
    assert (
        "between 2 ms (batch 2: 0.8 times as fast" in found["answer"]
        and "surely pay from 4 ms (batch 4" in found["answer"]
    )


def test_break_even_may_be_beyond_the_range(tmp_path: Path) -> None:
    found = breaks_even(tmp_path, 1.0)
    assert found["verdict"] == "never in the range measured" and pd.isna(found["effect"])
    assert "2 MPI ranks never pay in the range measured, up to 8 ms (batch 8" in found["answer"]


def test_break_even_may_be_below_the_range_and_undecided(tmp_path: Path) -> None:
    found = breaks_even(tmp_path, 1e-5, seed=0)
    assert "are faster on average in the whole range measured, from 1 ms" in found["answer"]
    assert found["verdict"] == "undecided: fewer than 3 seeds"


# Simulators, features, sweeps


def test_the_fastest_simulator_of_each_size_is_named_with_two_factors(tmp_path: Path) -> None:
    time = {"fused": 0.1, "default.qubit": 0.3, "lightning.qubit": 1.2}
    axes = factory.point(simulator=list(time), qubits=[4, 6])
    found = one(
        tmp_path,
        {"asked": {"kind": "simulator", "question": "?", "axes": axes}},
        lambda run: {
            "step_s": time[run.simulator] * (2 if run.size.startswith("q6") else 1) * (1 + 0.1 * run.seed)
        },
    )
    for words in (
        "with 4 qubits, fused is the fastest at 110 ms a step",
        "with 6 qubits, fused is the fastest at 220 ms",
    ):
        assert words in found["answer"]
    assert found["answer"].count("3 times as fast as default.qubit, the next") == 2
    assert found["answer"].count("12 times as fast as lightning.qubit, the slowest") == 2
    assert (found["effect"], found["verdict"]) == (pytest.approx(3.0), "pays")


def test_a_simulator_that_timed_out_has_no_factor(tmp_path: Path) -> None:
    late = {"status": "timed_out", "reason": "its time was over"}

    def change(run: Run) -> dict[str, Any]:
        times = {"fused": 1e-3, "default.qubit": 5e-3, "qiskit": 9.0}
        return {"step_s": times[run.simulator], **(late if run.simulator == "qiskit" else {})}

    points = [{"simulator": ["fused", "default.qubit", "qiskit"]}]
    found = one(tmp_path, study("simulator", points, seed=[0, 1, 2]), change)
    assert "fused is the fastest at 1 ms a step" in found["answer"]
    assert "5 times as fast as default.qubit, the next" in found["answer"]
    assert "; qiskit timed out." in found["answer"] and "slowest" not in found["answer"]
    assert (found["verdict"], found["effect"]) == (verdicts.PAYS, pytest.approx(5.0))


def test_two_simulators_within_the_noise_are_not_told_apart(tmp_path: Path) -> None:
    time = noisy(1.0, 1.01)
    axes = factory.point(simulator=["fused", "default.qubit"], seed=[0, 1, 2, 3, 4])
    found = one(
        tmp_path,
        {"asked": {"kind": "simulator", "question": "?", "axes": axes}},
        lambda run: {"step_s": time(run.simulator != "fused", run.seed)},
    )
    assert found["verdict"] == "no clear gain"


def test_simulators_on_different_hosts_are_compared_by_medians_and_decide_nothing(tmp_path: Path) -> None:
    axes = factory.point(simulator=["fused", "default.qubit"])
    config = factory.small_config({"asked": {"kind": "simulator", "question": "?", "axes": axes}})

    def change(run: Run) -> dict[str, Any]:
        machine = factory.record(config, run)["machine"]
        fused = run.simulator == "fused"
        return {"step_s": 0.1 if fused else 0.3, "machine": {**machine, "cpu": "One" if fused else "Other"}}

    found = answered(config, tmp_path, change).iloc[0]
    assert (
        "3 times as fast as default.qubit, the next (medians, no seed was timed in both)" in found["answer"]
    )
    assert found["verdict"] == "undecided: fewer than 3 seeds"


@pytest.mark.parametrize(
    ("law", "words", "verdict"),
    [
        (lambda qubits: 0.2 * qubits, "as 0 µs + 200 ms x qubits", "about in proportion"),
        (lambda qubits: 1.0 + 0.1 * qubits, "as 1 s + 100 ms x qubits", "less than in proportion"),
        (
            lambda qubits: 0.001 * 3.0**qubits,
            "about 3 times as long for each one more",
            "more than in proportion",
        ),
        (lambda qubits: 0.001 * qubits**3, "about as the power 3 of qubits", "more than in proportion"),
    ],
)
def test_a_sweep_names_the_law_of_its_growth(
    tmp_path: Path, law: Callable[[int], float], words: str, verdict: str
) -> None:
    found = one(
        tmp_path,
        study("qubits", qubits=[2, 4, 6, 8]),
        lambda run: {"step_s": law(int(run.size[1])) * (1 + 0.1 * run.seed)},
    )
    assert found["effect"] == pytest.approx(law(8) / law(2)) and found["verdict"] == verdict
    # The median is of seed 1, which takes 1.1 times as long.
    scaled = {"as 0 µs + 200 ms": "+ 220 ms", "as 1 s + 100 ms": "as 1.1 s + 110 ms"}
    assert next((new for old, new in scaled.items() if words.startswith(old)), words) in found["answer"]


def test_a_larger_batch_says_what_a_sample_costs(tmp_path: Path) -> None:
    found = one(
        tmp_path, study("batch", batch=[16, 64]), lambda run: {"step_s": {16: 1.0, 64: 2.0}[run.batch]}
    )
    assert (
        "from batch 16 to 64 a step takes 2 times as long (1 s to 2 s; 95 % interval 1.98 to 2.02, 3 seeds)"
        in found["answer"]
    )
    assert "less than in proportion, so a sample costs 0.5 times as much" in found["answer"]


# Parity


def test_parity_names_the_comparison_that_broke(tmp_path: Path) -> None:
    def change(run: Run) -> dict[str, Any]:
        off = 1 + 1e-4 * (run.layout == "mpi-n1r2t1")
        return {"losses": [2.3 * 0.9**step * off for step in range(20)]}

    found = one(tmp_path, study("parity", backend=LAYOUTS[:2], protocol="parity", seed=0), change)
    assert found["verdict"] == "not held" and "1 of 1 comparisons did not hold" in found["answer"]
    assert "fused on mpi-n1r2t1 beside fused on cpu-n1r1t1, differs by 1.0e-04" in found["answer"]


# All kinds


@pytest.mark.parametrize("path", [factory.ROOT / "config.yaml", *WHOLE], ids=lambda path: path.stem)
def test_every_ready_made_study_is_answered_whatever_is_there(path: Path, tmp_path: Path) -> None:
    config = analysis.read(path)
    noise = np.random.default_rng(3)

    def some(run: Run) -> dict[str, Any] | None:
        # A third of the runs each: there and quiet, busy, missing or diverged.
        fate = noise.integers(6)
        if fate == 0:
            return None
        return {1: {"quiet": BUSY}, 2: {"status": "diverged", "reason": "NaN"}}.get(int(fate), {})

    for name, change in {"whole": lambda run: {}, "some": some, "none": lambda run: None}.items():
        found = answered(config, tmp_path / name, change)
        assert list(found.index) == [study.name for study in config.studies]
        assert found[["question", "answer", "verdict"]].notna().all().all()
        assert not found["answer"].str.contains(r"\bnan\b|None").any()
        assert found["answer"].str.endswith(".").all()
        if name == "whole":
            assert (found["verdict"] != verdicts.OPEN).all()
        if name == "none":
            assert set(found["verdict"]) == {verdicts.OPEN} and found["answer"].str.contains("missing").all()
        known = found.dropna(subset=["low", "high"])
        assert ((known["low"] <= known["effect"]) & (known["effect"] <= known["high"])).all()
    assert tuple(pd.read_csv(tmp_path / "whole/tables/answers.csv", nrows=0).columns) == answers.COLUMNS
