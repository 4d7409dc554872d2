"""What is said of runs on more ranks than the records: from what they are planned by the model, or why they are not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from ketscale.jobs.costs.forecast import Forecast
from ketscale.jobs.costs.scaling import Scaled
from ketscale.words import counted, duration, rounded

MARK = "planned by the model"


def lines(forecasts: Iterable[Forecast], unplanned: Iterable[str]) -> list[str]:
    """A line for each law of an all-reduce that runs were planned with, and for each reason why others were not."""
    laws: dict[int, list[tuple[Forecast, Scaled]]] = {}
    for one in forecasts:
        if one.scaled:
            laws.setdefault(id(one.scaled.all_reduce), []).append((one, one.scaled))
    said = []
    for of in laws.values():
        law, least = of[0][1].all_reduce, min(by.most_ranks for _, by in of)
        off = max((by.off for _, by in of if by.off is not None), default=None)
        far = (
            "with nothing to compare" if off is None else f"where it is off by at most {math.expm1(off):.0%}"
        )
        said.append(
            f"{counted(len(of), 'run')} {MARK}, not measured: {law.backend} on up to {max(one.run.ranks for one, _ in of)} "
            f"ranks, as if the hardware had a core or GPU for each, from records of at most {least}, {far}. A step is that of "
            f"one rank with its share of the batch and an all-reduce of {duration(law.alpha_s, 2)} a round and "
            f"{rounded(law.beta_s * 1e9)} ns a byte ({counted(law.records, 'record')})"
        )
    for why, number in Counter(unplanned).items():
        said.append(f"{counted(number, 'run')} on more ranks than the records, not {MARK}: {why}")
    return said


def parts(one: Forecast) -> dict[str, object] | None:
    """The same of one run, for scripts; None if it was not planned by the model."""
    if one.scaled is None:
        return None
    law, by = one.scaled.all_reduce, one.scaled
    sent = {"alpha_s": law.alpha_s, "beta_s_per_byte": law.beta_s, "records": law.records}
    return {"share": by.share, "share_place": by.place, "most_ranks": by.most_ranks, "off": by.off, **sent}
