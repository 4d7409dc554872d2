"""Sentences of studies of speed: what is said of records whose truth is known, and that every sentence keeps its limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale import analysis
from ketscale.analysis import verdicts
from ketscale.analysis.kinds.kind import Answer
from ketscale.analysis.wording import fast, fitting, times, where
from ketscale.config import Config
from ketscale.grid import Run
from tests import records_factory as factory
from tests.ready_made import WHOLE
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


def test_factors_are_said_as_people_say_them() -> None:
    assert [times(factor) for factor in (1.55, 1.001, 0.999, 0.139)] == [
        "1.55 times as fast", "as fast", "as fast", "7.19 times as long"
    ]  # fmt: skip
    assert fast(0.5, "with one core") == "takes 2 times as long as with one core"


def test_layouts_have_names() -> None:
    names = {
        "cpu-n1r1t1": "one core", "cpu-n1r1t4": "four threads", "gpu-n1r1t1": "one GPU", "gpu-n1r1t4": "one GPU with four threads",
        "mpi-n1r1t1": "one MPI rank",
        "mpi-n2r2t1": "two MPI ranks on two nodes", "mpi-n1r2t3": "two MPI ranks of three threads", "ddp-n1r4t1": "four GPUs (DDP)",
        "mpi-n16r16t1": "16 MPI ranks on 16 nodes",
    }  # fmt: skip
    assert {text: where(text) for text in names} == names


def test_the_fullest_sentence_that_keeps_the_limits_is_taken() -> None:
    long = " ".join(["word"] * 26)
    assert fitting(
        long, "1, 2, 3 and 4 are numbers", "fp64 and q4-l3 are names, 2.5e-3 and 1,024 are numbers", "short"
    ) == ("fp64 and q4-l3 are names, 2.5e-3 and 1,024 are numbers")


# Doctored records with a known truth: what is said, in full and in short, and the verdict.
TRUE_3_PERCENT, TRUE_50_PERCENT = noisy(1.0, 1 / 1.03), noisy(1.0, 1 / 1.5)
TWO = study("strong", backend=LAYOUTS[:2], seed=FIVE)
SAID: dict[str, tuple[dict[str, Any], factory.Change, str, str, str]] = {
    "a true gain of 3 % in noise of 5 %": (
        TWO,
        lambda run: {"step_s": TRUE_3_PERCENT(run.ranks > 1, run.seed)},
        "With two MPI ranks a step is 1.0",
        "No clear gain: 1.0",
        verdicts.NO_GAIN,
    ),
    "a true gain of 50 % in noise of 5 %": (
        TWO,
        lambda run: {"step_s": TRUE_50_PERCENT(run.ranks > 1, run.seed)},
        "With two MPI ranks a step is 1.4",
        "It pays: 1.4",
        verdicts.PAYS,
    ),
    "one seed": (
        study("strong", backend=LAYOUTS[:2], seed=0),
        lambda run: {"step_s": 1 / run.ranks},
        "With two MPI ranks a step is 2 times as fast as with one core: undecided (too few seeds).",
        "Undecided (too few seeds): 2 times as fast as with one core",
        verdicts.FEW,
    ),
    "all busy": (
        TWO,
        lambda run: {"step_s": 1 / run.ranks, "quiet": factory.BUSY},
        "With two MPI ranks a step is 2 times as fast as with one core: undecided (busy machine).",
        "Undecided (busy machine): 2 times as fast as with one core",
        verdicts.DISTURBED,
    ),
    "no spread": (
        TWO,
        lambda run: {"step_s": 1.0},
        "With two MPI ranks a step is as fast as with one core: no clear gain.",
        "No clear gain: as fast as with one core",
        verdicts.NO_GAIN,
    ),
    "a slowdown": (
        TWO,
        lambda run: {"step_s": 1.0 if run.ranks == 1 else 7.19},
        "With two MPI ranks a step takes 7.19 times as long as with one core: it does not pay.",
        "It does not pay: 7.19 times as long as with one core",
        verdicts.PAYS_NOT,
    ),
    "three of five seeds diverged": (
        TWO,
        lambda run: {"step_s": 1 / run.ranks} | ({"status": "diverged"} if run.ranks > 1 and run.seed > 1 else {}),
        "With two MPI ranks a step is 2 times as fast as with one core: undecided (failed seeds).",
        "Undecided (failed seeds): 2 times as fast as with one core",
        verdicts.FAILED,
    ),
    "nothing finished": (
        TWO,
        lambda run: None,
        "Open: no run has finished yet.",
        "Open: nothing to compare yet",
        verdicts.OPEN,
    ),
    "every size has its own best layout": (
        study("strong", backend=LAYOUTS, qubits=[4, 6]),
        lambda run: {"step_s": {"q4": {1: 1.0, 2: 0.5, 4: 2.0}, "q6": {1: 4.0, 2: 2.5, 4: 1.0}}[run.size[:2]][run.ranks]},
        "It pays in three of four comparisons, most with four MPI ranks (6 qubits): a step is 4 times as fast as with one core.",
        "It pays in three of four comparisons, most 4 times as fast",
        verdicts.PAYS,
    ),
    "nothing pays": (
        study("strong", backend=LAYOUTS),
        lambda run: {"step_s": {1: 1.0, 2: 1.2, 4: 3.0}[run.ranks]},
        "It pays in no comparison, at best with two MPI ranks: a step takes 1.2 times as long as with one core.",
        "It pays in no comparison, at best 1.2 times as long",
        verdicts.PAYS_NOT,
    ),
    "the best point is undecided, and another surely does not pay": (
        study("strong", backend=LAYOUTS),
        lambda run: {"step_s": {1: 1.0, 2: 1.05, 4: 3.0}[run.ranks]}
        | ({"quiet": factory.BUSY} if run.ranks == 2 and run.seed else {}),
        "Undecided (too few seeds), at best with two MPI ranks: a step takes 1.05 times as long as with one core.",
        "Undecided (too few seeds), at best 1.05 times as long",
        verdicts.FEW,
    ),
    "nothing that is decided pays": (
        study("strong", backend=LAYOUTS),
        lambda run: {"step_s": {1: 1.0, 2: 1.2, 4: 3.0}[run.ranks]} | ({"quiet": factory.BUSY} if run.ranks == 4 else {}),
        "It pays in no decided comparison, at best with two MPI ranks: a step takes 1.2 times as long as with one core.",
        "It pays in no decided comparison, at best 1.2 times as long",
        verdicts.PAYS_NOT,
    ),
    "nothing is decided, and the best is of a busy machine": (
        study("strong", backend=LAYOUTS, seed=FIVE[:4]),
        lambda run: {"step_s": {1: 1.0, 2: 1 / 1.31, 4: 1 / 1.44}[run.ranks]}
        | ({"quiet": factory.BUSY} if run.ranks == 4 or (run.ranks == 2 and run.seed) else {}),
        "Undecided (busy machine), at best with four MPI ranks: a step is 1.44 times as fast as with one core.",
        "Undecided (busy machine), at best 1.44 times as fast",
        verdicts.DISTURBED,
    ),
    "weak scaling": (
        study("weak", [{"batch": 32, "backend": "cpu-n1r1t1"}, {"batch": 128, "backend": "mpi-n1r4t1"}]),
        lambda run: {"step_s": 1.0 if run.ranks == 1 else 1.25},
        "With four MPI ranks the same work is 3.2 times as fast as with one core: it pays.",
        "It pays: 3.2 times as fast as with one core",
        verdicts.PAYS,
    ),
    "simulators": (
        study("simulator", simulator=["fused", "default.qubit", "lightning.qubit"], qubits=[4, 6]),
        lambda run: {
            "step_s": {"fused": 0.1, "default.qubit": 0.3, "lightning.qubit": 1.2}[run.simulator]
            * (0.5 if run.size.startswith("q6") and run.simulator == "fused" else 1)
        },
        "The fastest everywhere is fused: default.qubit, the next, takes at least 3 times as long.",
        "Fastest everywhere: fused; the next takes at least 3 times as long",
        verdicts.SLOWER,
    ),
    "simulators that win at one size each": (
        study("simulator", simulator=["fused", "default.qubit"], qubits=[4, 6]),
        lambda run: {"step_s": 1.0 if (run.simulator == "fused") == run.size.startswith("q6") else 2.0},
        "The fastest is default.qubit in one and fused in one of two cases.",
        "Fastest: default.qubit in one and fused in one of two cases",
        verdicts.SLOWER,
    ),
    "simulators that win at one size each, of which one may be noise": (
        study("simulator", simulator=["fused", "default.qubit"], qubits=[4, 6], seed=FIVE),
        lambda run: {
            "step_s": TRUE_3_PERCENT(run.simulator != "fused", run.seed)
            if run.size.startswith("q4")
            else {"fused": 1.0, "default.qubit": 2.0}[run.simulator]
        },
        "The fastest is default.qubit in one and fused in one of two cases, not surely in each.",
        "Fastest: default.qubit in one of two cases, not surely in each",
        verdicts.NO_LOSS,
    ),
    "simulators within the noise": (
        study("simulator", simulator=["fused", "default.qubit"], seed=FIVE),
        lambda run: {"step_s": TRUE_3_PERCENT(run.simulator == "fused", run.seed)},
        "Steps are shortest with fused, but default.qubit is not surely slower: no clear loss.",
        "Fastest: fused, but default.qubit is not surely slower",
        verdicts.NO_LOSS,
    ),
    "one simulator times out": (
        study("simulator", simulator=["fused", "default.qubit", "qiskit"]),
        lambda run: {"step_s": {"fused": 1e-3, "default.qubit": 5e-3, "qiskit": 9.0}[run.simulator]}
        | ({"status": "timed_out", "reason": "its time was over"} if run.simulator == "qiskit" else {}),
        "The fastest is fused: default.qubit, the next, takes 5 times as long.",
        "Fastest: fused; the next takes 5 times as long",
        verdicts.SLOWER,
    ),
    "a straight line": (
        study("qubits", qubits=[2, 4, 6, 8]),
        lambda run: {"step_s": 0.2 * int(run.size[1])},
        "From 2 to 8 qubits a step takes 4 times as long: about in proportion.",
        "A step takes 4 times as long from 2 to 8 qubits",
        verdicts.ABOUT,
    ),
    "anything from a hundredth to 25 times": (
        study("qubits", qubits=[2, 8]),
        lambda run: {"step_s": [0.3, 2.0, 9.0][run.seed] if run.size.startswith("q8") else 1.0},
        "From 2 to 8 qubits a step takes 1.75 times as long: undecided.",
        "A step takes 1.75 times as long from 2 to 8 qubits",
        verdicts.UNDECIDED,
    ),
    "an exponential": (
        study("qubits", qubits=[2, 4, 6, 8]),
        lambda run: {"step_s": 0.001 * 3.0 ** int(run.size[1])},
        "From 2 to 8 qubits a step takes 729 times as long: more than in proportion.",
        "A step takes 729 times as long from 2 to 8 qubits",
        verdicts.MORE_THAN,
    ),
    "layers from one": (
        study("depth", layers=[1, 2, 4]),
        lambda run: {"step_s": 0.2 * int(run.size.split("-l")[1])},
        "From 1 to 4 circuit layers a step takes 4 times as long: about in proportion.",
        "A step takes 4 times as long",
        verdicts.ABOUT,
    ),
    "simulators that are all faster with qubits": (
        study("qubits", qubits=[2, 4], simulator=["fused", "default.qubit"]),
        lambda run: {"step_s": 1.0 if run.size.startswith("q2") else {"fused": 0.5, "default.qubit": 0.25}[run.simulator]},
        "From 2 to 4 qubits a step is at least 2 times as fast (fused): less than in proportion.",
        "A step is at least 2 times as fast",
        verdicts.LESS,
    ),
    "a larger batch that costs with both simulators": (
        study("batch", batch=[16, 64], simulator=["fused", "default.qubit"]),
        lambda run: {"step_s": 1.0 if run.batch == 16 else {"fused": 8.0, "default.qubit": 16.0}[run.simulator]},
        "From batch 16 to 64 images are trained at least 2 times as slowly (fused): it does not pay.",
        "Images are trained at least 2 times as slowly",
        verdicts.PAYS_NOT,
    ),
    "a larger batch": (
        study("batch", batch=[16, 64]),
        lambda run: {"step_s": {16: 1.0, 64: 2.0}[run.batch]},
        "From batch 16 to 64 images are trained 2 times as fast: it pays.",
        "Images are trained 2 times as fast from batch 16 to 64",
        verdicts.PAYS,
    ),
    "a larger batch that costs": (
        study("batch", batch=[16, 64]),
        lambda run: {"step_s": {16: 1.0, 64: 8.0}[run.batch]},
        "From batch 16 to 64 images are trained 2 times as slowly: it does not pay.",
        "Images are trained 2 times as slowly from batch 16 to 64",
        verdicts.PAYS_NOT,
    ),
    "parity that does not hold": (
        study("parity", backend=LAYOUTS[:2], protocol="parity", seed=0),
        lambda run: {"losses": [2.3 * 0.9**step * (1 + 1e-4 * (run.ranks > 1)) for step in range(20)]},
        "The comparison did not hold: first losses of fused on two MPI ranks and fused on one core differ by 0.0001 (limit 1e-10).",
        "Not the same numbers: the comparison did not hold",
        verdicts.NOT_HELD,
    ),
    "parity whose runs all failed": (
        study("parity", backend=LAYOUTS[:2], protocol="parity", seed=0),
        lambda run: {"status": "diverged", "reason": "NaN", "losses": []},
        "Undecided (failed seeds): no two runs that must train alike have finished, since 2 runs failed.",
        "Undecided (failed seeds)",
        verdicts.FAILED,
    ),
    "parity that holds within limits, of which the largest difference has the wider": (
        study("parity", [{"simulator": ["fused", "default.qubit"]}, {"backend": LAYOUTS[1]}], protocol="parity", seed=0),
        lambda run: {"losses": [2.3 * (1 + 2e-10 * (run.simulator == "fused") + 5e-11 * (run.ranks > 1))] * 20},
        "The first losses are the same within limits: all three comparisons held, with differences of at most 2.5e-10.",
        "The same numbers: all three comparisons held",
        verdicts.HELD,
    ),
    "parity that holds": (
        study("parity", backend=LAYOUTS, protocol="parity", seed=0),
        lambda run: {"losses": [2.3 * 0.9**step for step in range(20)]},
        "The first losses are the same: both comparisons held, bit by bit.",
        "The same numbers: both comparisons held",
        verdicts.HELD,
    ),
}  # fmt: skip


@pytest.mark.parametrize("truth", SAID)
def test_what_is_said_follows_from_what_is_known(truth: str, tmp_path: Path) -> None:
    studies, change, text, short, verdict = SAID[truth]
    answer = said(tmp_path, studies, change)
    assert answer.verdict == verdict
    assert (answer.text, answer.short) == (text, short) or (
        not text.endswith(".") and answer.text.startswith(text) and answer.short.startswith(short)
    )


def test_a_table_of_features_has_rows_and_not_images(tmp_path: Path) -> None:
    made = factory.small_study(study("strong", workload="table", backend=LAYOUTS[:2]))
    (tmp_path / "table.npz").write_bytes(b"")
    made["workloads"]["table"] = {"kind": "arrays", "file": str(tmp_path / "table.npz")}
    config = analysis.of(made)
    assert config.samples("table") == "rows" and config.samples("digits") == "images"
    factory.write_all(config, tmp_path / "results")
    (answer,) = answers_of(config, tmp_path / "results").values()
    assert "core-seconds for 1,000 rows" in answer.rows[0].more


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


@pytest.mark.parametrize(
    ("busy", "told"),
    [
        (1, "1 of 3 points is not as good as the others (busy)."),
        (2, "2 of 3 points are not as good as the others (busy)."),
        (3, "All points are flagged (busy)."),
    ],
)
def test_a_note_counts_the_points_that_are_flagged(busy: int, told: str, tmp_path: Path) -> None:
    disturbed = LAYOUTS[-busy:]
    answer = said(
        tmp_path,
        study("strong", backend=LAYOUTS),
        lambda run: {"quiet": factory.BUSY} if run.layout in disturbed else {},
    )
    assert told in answer.notes


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda record: {"machine": {**record["machine"], "host": "b"}}, "hosts"),
        (
            lambda record: {"code": {**record["code"], "imported": "nameelse"}},
            "code",
        ),
        (lambda record: {"packages": {**record["packages"], "torch": "2.13"}}, "torch"),
    ],
)
def test_times_that_share_no_host_code_or_packages_are_not_compared_and_it_says_why(
    change: Callable[[dict[str, Any]], dict[str, Any]], why: str, tmp_path: Path
) -> None:
    studies = study("strong", backend=LAYOUTS[:2])
    config = factory.small_config(studies)
    answer = said(tmp_path, studies, lambda run: change(factory.record(config, run)) if run.ranks > 1 else {})
    assert answer.verdict == verdicts.APART and answer.effect is None
    assert answer.rows[1].verdict == verdicts.APART and why in answer.rows[1].more["left out"]
    assert answer.text.startswith("Undecided (not comparable): two MPI ranks beside one core")


def test_a_point_whose_seeds_all_failed_is_undecided_and_not_open(tmp_path: Path) -> None:
    def change(run: Run) -> dict[str, Any]:
        failed = {"status": "diverged", "reason": "NaN"}
        return failed if run.size.startswith("q8") else {"step_s": 0.2 * int(run.size[1])}

    answer = said(tmp_path, study("qubits", qubits=[2, 4, 8]), change)
    assert [row.verdict for row in answer.rows] == ["", verdicts.ABOUT, verdicts.FAILED]


def test_a_simulator_whose_seeds_all_failed_is_undecided_and_not_open(tmp_path: Path) -> None:
    time = {"fused": 1e-3, "default.qubit": 5e-3, "qiskit": 9.0}

    def change(run: Run) -> dict[str, Any]:
        failed = {"status": "diverged", "reason": "NaN"} if run.simulator == "default.qubit" else {}
        return {"step_s": time[run.simulator], **failed}

    answer = said(tmp_path, study("simulator", simulator=list(time)), change)
    assert {row.point: row.verdict for row in answer.rows} == {
        "fused": "", "qiskit": verdicts.SLOWER, "default.qubit": verdicts.FAILED
    }  # fmt: skip


def test_a_gpu_is_compared_with_cores(tmp_path: Path) -> None:
    time = {"cpu-n1r1t1": 1.0, "cpu-n1r1t4": 0.4, "gpu-n1r1t1": 0.01}
    answer = said(tmp_path, study("strong", backend=list(time)), lambda run: {"step_s": time[run.layout]})
    assert "The fastest step of each device: one GPU 10 ms and four threads 400 ms." in answer.notes


@pytest.mark.parametrize(
    "path",
    [
        factory.ROOT / "config.yaml",
        factory.ROOT / "tests/data/study.yaml",
        # Thousands of runs, in each of their fates.
        *(
            pytest.param(path, marks=[pytest.mark.in_full] * (path.stem == "better-than-classical"))
            for path in WHOLE
        ),
    ],
    ids=lambda path: path.stem,
)
def test_every_answer_is_one_finding_whatever_is_there(path: Path, tmp_path: Path) -> None:
    config = analysis.read(path)
    for name, change in factory.fates().items():
        factory.write_all(config, tmp_path / name, change)
        for study_name, answer in answers_of(config, tmp_path / name).items():
            assert not faults(answer), study_name
            words = {answer.verdict, *(row.verdict for row in answer.rows)} - {""}
            assert words <= set(verdicts.MEANINGS), study_name
            assert name != "none" or answer.verdict == verdicts.OPEN


def test_no_order_of_blocks_points_or_seeds_changes_a_word_or_a_number(tmp_path: Path) -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(each) for each in reversed(value)] if isinstance(value, list) else value

    given = factory.default_study()
    # The first point of a study of changes is its baseline.
    other = {
        **given,
        **{name: turned(given[name]) for name in ("workloads", "simulators", "protocols", "studies")},
    }
    found = []
    for number, settings in enumerate((given, other)):
        config: Config = analysis.of(settings)
        factory.write_all(config, tmp_path / str(number))
        found.append(answers_of(config, tmp_path / str(number)))
    assert found[0] == found[1]
