"""laws.csv: which runs a law is fitted to, why it is refused, the regimes of sweeps, and what figures draw of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ketscale.analysis.collected import Collected
from ketscale.analysis.columns import LAWS
from ketscale.analysis.laws import fits
from ketscale.analysis.points import Row
from ketscale.config import Config
from ketscale.grid import Run, Study, layout
from tests import records_factory as factory
from tests.claims_factory import record as recorded

CONFIG = factory.default_config()
SEEDS = (0, 1, 2)
RANKS = (1, 2, 4, 8)
SWEPT = {"batch": "batch", "qubits": "qubits", "depth": "layers"}
KIB = 1024


def runs(
    seconds: float, seeds: Iterable[int] = SEEDS, noise: float = 0.01, **changes: Any
) -> list[dict[str, Any]]:
    """Rows of runs.csv of one point, as far as laws read them, with noise that depends on point and seed."""
    made = {
        "workload": "digits", "model": "vqc", "size": "q4-l3", "batch": 64, "simulator": "fused", "protocol": "timing",
        "layout": "mpi-n1r1t1", "status": "completed", "resumed": 0, "quiet": True, "timed": True, "precision": "fp32",
        "shared_cores": False, "gpus": "", "cache_bytes": None, "gradient_bytes": 400, "studies": "s",
        "hardware": "CPU, 8 cores", "code": "0.1.0",
        "imported": "", "packages": "torch=2.9", "mpi_library": "", "data_hash": "", "features_hash": "", **changes,
    }  # fmt: skip
    at = [ord(letter) for letter in f"{made['layout']}{made['size']}{made['batch']}{made['gradient_bytes']}"]
    return [
        {
            **made,
            **layout(made["layout"]),
            "seed": seed,
            "step_s": seconds * float(np.exp(noise * np.random.default_rng([seed, *at]).standard_normal())),
        }
        for seed in seeds
    ]


def ranks(count: int, **changes: Any) -> list[dict[str, Any]]:
    """The runs on some MPI ranks under Amdahl's law with a serial fraction of 0.1."""
    seconds = changes.pop("seconds", 0.1 + 0.9 / count)
    return runs(seconds, layout=f"mpi-n1r{count}t1", **changes)


def laws_of(
    kind: str, rows: list[dict[str, Any]], records: Mapping[Run, Any] | None = None, config: Config = CONFIG
) -> pd.DataFrame:
    """laws.csv of a config with one study of these runs."""
    study = Study("s", kind, "?", tuple(Run.of(row) for row in rows))
    nothing = recorded()
    known = {Run.of(row): nothing for row in rows} | dict(records or {})
    collected = Collected.of(replace(config, studies=(study,)), rows, {}, known)
    return pd.DataFrame(fits.rows(collected, SWEPT), columns=[column.name for column in LAWS.columns(config)])


def of(laws: pd.DataFrame, law: str) -> Row:
    """The first row of a law."""
    return laws[laws["law"] == law].iloc[0].to_dict()


def test_strong_scaling_has_the_laws_of_amdahl_and_gunther() -> None:
    laws = laws_of("strong", [row for count in RANKS for row in ranks(count)])
    amdahl, usl = of(laws, "Amdahl"), of(laws, "USL")
    assert (amdahl["verdict"], amdahl["series"], amdahl["n"], amdahl["points"]) == (
        "accepted", "mpi-n1r*t1", 3, 4
    )  # fmt: skip
    assert amdahl["low"] < 0.1 < amdahl["high"] and amdahl["parameter"] == "serial fraction"
    assert (amdahl["held_out"], amdahl["error_low"] < 0 < amdahl["error_high"]) == ("8 ranks", True)
    assert (usl["verdict"], usl["parameter"]) == ("accepted", "contention")
    assert pd.isna(usl["held_out"])


@pytest.mark.parametrize("change, why", [
    ({"shared_cores": True}, "its threads share cores"),
    ({"shared_cores": None}, "unknown whether its threads share cores"),
    ({"quiet": False}, "busy"),
    ({"timed": False}, "untimed"),
    ({"status": "diverged"}, "no completed run"),
])  # fmt: skip
def test_unsound_points_are_left_out_and_named(change: dict[str, Any], why: str) -> None:
    rows = [row for count in RANKS[:3] for row in ranks(count)] + ranks(8, **change)
    usl = of(laws_of("strong", rows), "USL")
    assert usl["verdict"] == "refused"
    assert (
        usl["reason"] == f"3 points; the fewest that can contradict this law are 4. left out: 8 ranks: {why}"
    )


def test_gpus_must_be_as_many_as_ranks() -> None:
    rows = [
        row for count in (1, 2, 4) for row in runs(1 / count, layout=f"ddp-n1r{count}t1", gpus="H100; H100")
    ]
    assert of(laws_of("strong", rows), "Amdahl")["reason"].endswith("left out: 4 ranks: 4 ranks on 2 GPUs")


def test_what_cannot_be_compared_has_no_law() -> None:
    rows = [*ranks(1), *ranks(2, packages="torch=2.13"), *ranks(4)]
    amdahl = of(laws_of("strong", rows), "Amdahl")
    assert (amdahl["verdict"], amdahl["reason"]) == ("refused", "other packages (torch 2.9 and 2.13)")


def test_each_class_of_hosts_has_laws_of_its_own() -> None:
    rows = [row for count in RANKS for row in ranks(count)]
    slower = [row for count in RANKS for row in ranks(count, seconds=0.6 + 2 / count, hardware="B")]
    laws = laws_of("strong", [*rows, *slower])
    amdahl = laws[(laws["law"] == "Amdahl") & (laws["parameter"] == "serial fraction")].set_index("hardware")
    assert list(amdahl.index) == ["B", "CPU, 8 cores"] and set(amdahl["n"]) == {3}
    assert amdahl.loc["B", "estimate"] == pytest.approx(0.6 / 2.6, rel=0.1)
    found = fits.of_line(laws, line().assign(hardware="B"))
    assert found is not None and found.words.endswith("with serial fraction 0.23")


def test_weak_scaling_has_gustafsons_law() -> None:
    rows = [row for p in RANKS for row in ranks(p, seconds=p / (p - 0.1 * (p - 1)), batch=64 * p)]
    (serial, time) = laws_of("weak", rows).to_dict("records")
    assert (serial["law"], serial["verdict"]) == ("Gustafson", "accepted")
    assert serial["low"] < 0.1 < serial["high"]
    assert time["parameter"] == "time of one worker" and time["estimate"] == pytest.approx(1, rel=0.02)


def reductions(
    sizes: Iterable[int], counts: Iterable[int] = (2,), span: str = "communication", **changes: Any
) -> pd.DataFrame:
    """laws.csv of runs whose all-reduce takes 20 us a doubling of ranks and 1 ns a byte that a rank sends."""
    rows, records = [], {}
    for count in counts:
        for size in sizes:
            own = {"layout": f"mpi-n1r{count}t1", "model": f"m{size}", "gradient_bytes": size, **changes}
            for row in runs(2e-5 * np.log2(count) + 1e-9 * 2 * (1 - 1 / count) * size, noise=0.03, **own):
                rows.append(row)
                records[Run.of(row)] = recorded(**{span: row["step_s"]})
    laws = laws_of("simulator", rows, records)
    return laws[laws["law"] == "alpha-beta"]


@pytest.mark.parametrize(("span", "counts"), [("communication", (2,)), ("communication.total", (2, 4, 8))])
def test_an_all_reduce_has_a_latency_and_a_time_per_byte(span: str, counts: tuple[int, ...]) -> None:
    alpha, beta = reductions([1000, 10_000, 100_000, 1_000_000], counts, span).to_dict("records")
    assert (alpha["verdict"], alpha["study"], alpha["series"]) == ("accepted", "s", "mpi-n1r*t1")
    assert alpha["low"] < 2e-5 < alpha["high"] and beta["low"] < 1e-9 < beta["high"]
    assert alpha["held_out"] == f"{counts[-1]} ranks, 1000000 B" and alpha["points"] == 4 * len(counts)


def test_untimed_runs_say_nothing_about_an_all_reduce() -> None:
    assert reductions([1000, 10_000, 100_000], timed=False).empty


def test_ddp_sums_larger_gradients_in_several_messages() -> None:
    laws = reductions([1000, 10_000, 100_000, 2_000_000], layout="ddp-cpu-n1r2t1")
    assert set(laws["points"]) == {3}


def batches(
    slope: float = 2e-6, beyond: float = 1.0, limit: float = 64 * KIB, **changes: Any
) -> list[dict[str, Any]]:
    """A sweep of the batch: 1 ms, and a time per sample that is `beyond` times larger for states above a limit."""
    sizes = (8, 32, 128, 512, 2048, 8192, 32768)
    found = []
    for batch in sizes:
        factor = beyond if batch * 2**4 * 8 > limit else 1
        found += runs(1e-3 + slope * factor * batch, batch=batch, layout="cpu-n1r1t1", **changes)
    return found


def test_a_sweep_names_the_regime_of_each_point() -> None:
    laws = laws_of("batch", batches(beyond=4, limit=64 * KIB, cache_bytes=64 * KIB))
    fixed, inside, outside = laws[laws["law"] == "cost"].to_dict("records")
    assert fixed["verdict"] == "accepted"
    assert (fixed["size"], fixed["series"], pd.isna(fixed["batch"])) == ("q4-l3", "cpu-n1r1t1", True)
    # A batch of n has 12 n gates times amplitudes of 16.
    gates = 2**4 * 4 * 3
    assert fixed["low"] < 1e-3 < fixed["high"]
    assert inside["low"] < 2e-6 / gates < inside["high"] and outside["low"] < 8e-6 / gates < outside["high"]
    assert fixed["regimes"] == ("dispatch: 8 to 128; cache: 512; memory: 2048 to 32768")
    assert fixed["held_out"] == "batch 32768" and fixed["error_low"] < 0 < fixed["error_high"]


@pytest.mark.parametrize("precision, size", [("fp32", 8), ("amp", 8), ("fp64", 16)])
def test_work_and_states_are_counted_in_amplitudes(precision: str, size: int) -> None:
    found = fits.load(CONFIG.family("digits"), {"qubits": 5, "layers": 3}, 64, precision)
    assert found == (64 * 32 * 15, 64 * 32 * size)


def line(counts: Iterable[int] = RANKS, scale: float = 1.0) -> pd.DataFrame:
    """A line of scaling.csv under the same law, whose ratios are to another process."""
    return pd.DataFrame(
        [
            {
                **ranks(count)[0],
                "study": "s",
                "flag": "",
                "workers": count,
                "speedup_same": scale / (0.1 + 0.9 / count),
            }
            for count in counts
        ]
    )


def test_an_accepted_law_goes_through_its_points() -> None:
    scale = 0.8
    laws = laws_of("strong", [row for count in RANKS for row in ranks(count, noise=1e-4)])
    found = fits.of_line(laws, line(scale=scale))
    assert found is not None and found.words == "Amdahl's law with serial fraction 0.1"
    assert (found.workers[0], found.workers[-1]) == (pytest.approx(1), pytest.approx(8))
    assert found.speedups == pytest.approx([scale / (0.1 + 0.9 / p) for p in found.workers], rel=0.01)
