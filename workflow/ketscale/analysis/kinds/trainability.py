"""Trainability: how the gradients of random circuits fall with the number of qubits and layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ketscale.analysis import comparability, laws, metrics, verdicts
from ketscale.analysis.columns import rows as table_rows
from ketscale.analysis.comparison import Collected, Compared
from ketscale.analysis.heavy import np, pd
from ketscale.analysis.intervals import EFFECT, LEVEL, columns
from ketscale.analysis.points import counted, size_axes, variants
from ketscale.config.simulators.circuits import CIRCUIT_SIZES
from ketscale.grid import POINT, Study

UNIT = "times the squared gradient"


def points(collected: Collected, study: Study) -> pd.DataFrame:
    """The probed points of a study, each with the mean of its squared gradient over seeds, and the square of each seed."""
    made = []
    for group in collected.groups(study):
        done = [row for row in group if row["gradient_square"] is not None]
        if not done:
            continue
        names = (*POINT, *size_axes(collected.config), "hardware", "code", "circuit_qubits")
        keys = [comparability.quality(each) for each in done]
        row = {name: done[0][name] for name in names}
        row |= {"n": len(done), "failed": len(group) - len(done), "keys": keys}
        row["squares"] = {each["seed"]: each["gradient_square"] for each in done}
        apart = comparability.hindrance(keys)
        mean = None if apart else metrics.over_seeds([*row["squares"].values()], positive=False)
        made.append(row | columns(mean, *EFFECT))
    return pd.DataFrame(made)


def rows(study: Study, collected: Collected) -> Iterator[dict[str, Any]]:
    """The decay of each line with each qubit and with each layer, and the gradient at each point that was probed."""
    probed = points(collected, study)
    if probed.empty:
        return
    made, decays = [], []
    for axis in CIRCUIT_SIZES:
        named = probed.assign(line=variants(probed, collected.config, (axis.name, "batch", "layout")))
        for (_, line), group in named.groupby(["workload", "line"], sort=True):
            if group[axis.name].nunique() < 2:
                continue
            group = group.sort_values(axis.name)
            first, last = group.iloc[0], group.iloc[-1]
            ends = f"{counted(first[axis.name], axis)} to {counted(last[axis.name], axis)}"
            names = ("workload", "model", "simulator", "protocol", "hardware", "code")
            row = {name: last[name] for name in names} | {"law": "decay", "series": ends}
            row["parameter"] = f"with each {axis.name.removesuffix('s')}"
            row["point"] = f"{line or last['model']}, each of {ends}"
            made.append(row)
            decays.append(decay(axis.name, group))
    words = verdicts.ratios([found for found, _ in decays], verdicts.RISES, verdicts.FALLS)
    for row, (found, bent), (word, why) in zip(made, decays, words, strict=True):
        factor = found.ratio
        yield {
            **row, "n": factor.n if factor else None, **columns(factor, *EFFECT),
            "unit": UNIT if factor else "", "verdict": word, "why": why or bent,
        }  # fmt: skip
    for point in table_rows(probed.dropna(subset="effect").drop(columns=["keys", "squares"])):
        words_of = ", ".join(counted(point[axis.name], axis) for axis in CIRCUIT_SIZES)
        yield {**point, "law": "probe", "parameter": "gradient_square", "point": words_of}


def decay(axis: str, line: pd.DataFrame) -> tuple[Compared, str]:
    """The factor of the mean squared gradient with each further qubit or layer of a line of points, and what limits it.

    It is from the seeds that all points have; see `laws.slope`, which is given the logarithms. What limits it is that an
    F-test of lack of fit rejects one factor for the whole range.
    """
    if why := comparability.hindrance(key for keys in line["keys"] for key in keys):
        return Compared(None, why=why), ""
    seeds = sorted(set.intersection(*map(set, line["squares"])))
    if not seeds:
        return Compared(None, why="no seed was probed at every size"), ""
    table = np.array([[squares[seed] for seed in seeds] for squares in line["squares"]], dtype=float).T
    if (table <= 0).any():
        return Compared(None, why="of some size no observable depends on any angle"), ""
    found, p_value = laws.slope(line[axis].to_numpy(float), np.log(table))
    bent = f"one factor does not describe the whole range (F-test of lack of fit, p = {p_value or 0:.2g})"
    return Compared(found.mapped(math.exp)), bent if p_value is not None and p_value < 1 - LEVEL else ""
