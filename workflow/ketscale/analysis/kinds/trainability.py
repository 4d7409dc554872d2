"""Trainability: how gradients, states and entanglement of random circuits change with the number of qubits and layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from ketscale.analysis import comparability, laws, metrics, verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.drawing.probes import MEASURES
from ketscale.analysis.heavy import np, pd
from ketscale.analysis.intervals import LEVEL, Estimate
from ketscale.analysis.points import Row, counted, size_axes, variants
from ketscale.engines.circuits.settings import CIRCUIT_SIZES
from ketscale.grid import POINT, Study

UNIT = "times the squared gradient"


class Decay(NamedTuple):
    """How the mean squared gradient changes along an axis: the factor of each further qubit or layer, and the p-value of the
    F-test of lack of fit of one factor for the whole range (None where nothing can show it); or why there is no factor.
    """

    factor: Estimate | None
    p_value: float | None = None
    why: str = ""


def points(collected: Collected, study: Study) -> pd.DataFrame:
    """The probed points of a study, each with the means of its measures over seeds, and their seeds' squares."""
    made = []
    for group in collected.groups(study):
        done = [row for row in group if row["gradient_square"] is not None]
        if not done:
            continue
        names = (*POINT, *size_axes(collected.config), "hardware", "code", "circuit_qubits")
        row = {name: done[0][name] for name in names}
        keys = {comparability.quality(each) for each in done}
        joined = [] if comparability.hindrance(keys) else done
        for name in MEASURES:
            values = [each[name] for each in joined]
            mean = metrics.over_seeds(values, positive=False) if values else None
            ends = (mean.value, mean.low, mean.high) if mean else (None, None, None)
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
        squares = {each["seed"]: each["gradient_square"] for each in done}
        made.append(
            {**row, "n": len(done), "squares": squares, "keys": keys, "failed": len(group) - len(done)}
        )
    return pd.DataFrame(made)


def rows(study: Study, collected: Collected) -> Iterator[dict[str, Any]]:
    """The decay of each line with each qubit and with each layer, and the measures of each point that was probed."""
    probed = points(collected, study)
    if probed.empty:
        return
    made: list[tuple[dict[str, Any], Decay]] = []
    for axis in CIRCUIT_SIZES:
        named = probed.assign(line=variants(probed, collected.config, (axis.name, "batch", "layout")))
        for (_, line), group in named.groupby(["workload", "line"], sort=True):
            if group[axis.name].nunique() < 2:
                continue
            group = group.sort_values(axis.name)
            first, last = group.iloc[0], group.iloc[-1]
            ends = f"{counted(first[axis.name], axis)} to {counted(last[axis.name], axis)}"
            name = f"{line or last['model']}, each of {ends}"
            about = {
                name: last[name]
                for name in ("workload", "model", "simulator", "protocol", "hardware", "code")
            }
            row = {
                **about,
                "point": name,
                "series": ends,
                "law": "decay",
                "parameter": f"with each {axis.name.removesuffix('s')}",
            }
            made.append((row, decay(axis.name, group)))
    able = [found.factor for _, found in made if found.factor and found.factor.low is not None]
    words = iter(
        verdicts.holm(
            [partial(verdicts.of_ratio, each, above=verdicts.RISES, below=verdicts.FALLS) for each in able]
        )
    )
    for row, found in made:
        word, why = _verdict(found, words)
        factor = found.factor
        yield {
            "study": study.name, "kind": study.kind, "on": "", **row, "n": factor.n if factor else None,
            "effect": factor and factor.value, "low": factor and factor.low, "high": factor and factor.high,
            "unit": UNIT if factor else "", "verdict": word, "why": why,
        }  # fmt: skip
    for _, point in probed.iterrows():
        words_of = ", ".join(filter(None, (counted(point[axis.name], axis) for axis in CIRCUIT_SIZES)))
        for name in MEASURES:
            if pd.notna(point[name]):
                yield {
                    "study": study.name, "kind": study.kind, "on": "", "law": "probe", "parameter": name,
                    **{each: point[each] for each in (*POINT, *size_axes(collected.config), "hardware", "code", "n", "failed", "circuit_qubits")},
                    "point": words_of, "effect": point[name], "low": point[f"{name}_low"], "high": point[f"{name}_high"],
                }  # fmt: skip


def _verdict(found: Decay, words: Iterator[str | None]) -> tuple[str, str]:
    if found.factor is None:
        return verdicts.NOT_COMPARABLE, found.why
    if found.factor.low is None:
        return verdicts.CANNOT_TELL, verdicts.FEW
    bent = found.p_value is not None and found.p_value < 1 - LEVEL
    why = (
        f"one factor does not describe the whole range (F-test of lack of fit, p = {found.p_value:.2g})"
        if bent
        else ""
    )
    return next(words) or verdicts.CANNOT_TELL, why


def decay(axis: str, line: pd.DataFrame) -> Decay:
    """The decay of a line of points along an axis, from the seeds that all of them have.

    See `laws.slope`, which is given the logarithms.
    """
    if why := comparability.hindrance(key for keys in line["keys"] for key in keys):
        return Decay(None, why=why)
    seeds = sorted(set.intersection(*map(set, line["squares"])))
    if not seeds:
        return Decay(None, why="no seed was probed at every size")
    table = np.array([[squares[seed] for seed in seeds] for squares in line["squares"]], dtype=float).T
    if (table <= 0).any():
        return Decay(None, why="of some size no observable depends on any angle")
    found, p_value = laws.slope(line[axis].to_numpy(float), np.log(table))
    return Decay(found.mapped(math.exp), p_value)


def fastest(made: Sequence[Row]) -> Row:
    """The line whose gradient falls fastest with each qubit, or with each layer if no line has several qubits."""
    first = made[0]["parameter"]
    return min(
        (row for row in made if row["parameter"] == first), key=lambda row: (row["effect"], row["point"])
    )
