"""What is said of runs on more ranks than the records: from what they are planned by the model, or why they are not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ketscale.jobs.costs.forecast import Forecast
from ketscale.words import counted, duration, rounded

MARK = "planned by the model"


def lines(forecasts: Iterable[Forecast], unplanned: Iterable[str]) -> list[str]:
    """A line for each law of an all-reduce that runs were planned with, and for each reason why others were not."""
    laws: dict[int, list[Forecast]] = {}
    for one in forecasts:
        if one.scaled:
            laws.setdefault(id(one.scaled.all_reduce), []).append(one)
    return [
        *(f"{counted(len(of), 'run')} {MARK}, not measured: {_from_what(of)}" for of in laws.values()),
        *(
            f"{counted(number, 'run')} on more ranks than the records, not {MARK}: {why}"
            for why, number in Counter(unplanned).items()
        ),
    ]


def _from_what(of: Sequence[Forecast]) -> str:
    scaled = [one.scaled for one in of if one.scaled]
    law = scaled[0].all_reduce
    off = max((one.off for one in scaled if one.off is not None), default=None)
    compared = (
        "with nothing to compare" if off is None else f"where it is off by at most {math.expm1(off):.0%}"
    )
    return (
        f"{law.backend} on up to {max(one.run.ranks for one in of)} ranks, as if the hardware had a core or GPU for each, from records of at most "
        f"{min(one.most_ranks for one in scaled)}, {compared}. A step is that of one rank with its share of the batch and an "
        f"all-reduce of {duration(law.alpha_s, 2)} a round and {rounded(law.beta_s * 1e9)} ns a byte "
        f"({counted(law.records, 'record')})"
    )


def parts(one: Forecast) -> dict[str, object] | None:
    """The same of one run, for scripts; None if it was not planned by the model."""
    if one.scaled is None:
        return None
    law = one.scaled.all_reduce
    return {
        "share": one.scaled.share,
        "share_place": one.scaled.place,
        "most_ranks": one.scaled.most_ranks,
        "off": one.scaled.off,
        "alpha_s": law.alpha_s,
        "beta_s_per_byte": law.beta_s,
        "records": law.records,
    }
