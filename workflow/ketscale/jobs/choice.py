"""What a search chooses for a point of the grid: by the validation of its trials' records, never by a test.

It is worked out wherever it is asked for. The runs of the point train with it, and their settings have its hash. Imports
nothing heavy: the Snakefile asks here.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ketscale import grid
from ketscale.config import Settings
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.measure import record
from ketscale.measure.record import State
from ketscale.words import counted


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trial.

    name: of its protocol. settings: what was drawn, by name. config: SHA-256 of the settings of each of its runs. validation:
    the mean over its seeds of the metric, None if one of them was not completed, and `why`; loss: so, None also of a fit.
    """

    name: str
    settings: dict[str, Any]
    config: list[str]
    validation: float | None
    loss: float | None
    why: str = ""


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was chosen, and by what; `hash` is in the settings of the runs that train with it.

    point: the runs that train with it, without their seeds. metric: that of validation data; better: 'up' or 'down'.
    features: the features hash of the data. chosen: the number of the trial. why: in words. hash: SHA-256 of all the rest.
    """

    point: str
    metric: str
    better: str
    features: str | None
    trials: list[Trial]
    chosen: int
    why: str
    hash: str = ""


def of(settings: Settings, results: Mapping[Run, State], features: str | None) -> Choice:
    """What the records of the trials of a run's point say: of several that are equally good on validation data the one with
    the smaller loss there, then the smaller number.

    Args:
        settings: of the run, before the choice.
        results: of all its trials.

    Raises:
        UserError: no trial was completed, or there are no validation samples.
    """
    metric, name = settings.family.headline, Path(settings.run.name).parent
    trials = list(_trials(settings, results))
    able = {number: each.validation for number, each in enumerate(trials) if each.validation is not None}
    if not able:
        states = Counter(each.why for each in trials)
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        raise UserError(
            f"{name}: none of {counted(len(trials), 'trial')} can be chosen ({counts}); give `search` other settings"
        )
    best = (max if metric.better == "up" else min)(able.values())
    equal = [number for number, value in able.items() if value == best]
    losses = {number: math.inf if (loss := trials[number].loss) is None else loss for number in equal}
    winner = min(equal, key=lambda number: (losses[number], number))
    why = f"{trials[winner].name} has the best {metric.title} on validation data of {counted(len(able), 'trial')}"
    if len(able) < len(trials):
        why += f"; {len(trials) - len(able)} failed"
    if len(equal) > 1:
        first = "first" if losses[winner] == math.inf else "one with the smallest loss"
        why += f"; of {len(equal)} with the same it is the {first}"
    choice = Choice(str(name), metric.name, str(metric.better), features, trials, winner, why)
    return msgspec.structs.replace(choice, hash=_hash(choice))


def _trials(settings: Settings, results: Mapping[Run, State]) -> Iterator[Trial]:
    search, metric = settings.protocol.search, settings.family.headline.name
    assert search is not None
    for number, of_seeds in enumerate(settings.trials):
        name, point = of_seeds[0].run.protocol, search.point(settings.run.model, number)
        about = name, {**point.training, **point.model}, [each.hash for each in of_seeds]
        values, losses, why = [], [], ""
        for each in of_seeds:
            result = results[each.run].record
            quality = result.quality if result else None
            value = quality.validation.get(metric) if quality else None
            if quality and isinstance(value, (int, float)):
                values.append(value)
                losses.append(quality.validation.get("loss"))
            else:
                why = why or (f"without {metric}" if quality else results[each.run].state)
        finite = [loss for loss in losses if isinstance(loss, (int, float))]
        loss = statistics.fmean(finite) if finite and len(finite) == len(of_seeds) else None
        yield Trial(*about, None if why else statistics.fmean(values), None if why else loss, why)


def make(settings: Settings, results: Path, features: str | None) -> Choice:
    """What the records of the trials of a run's point, below `results`, choose.

    Args:
        settings: of the run, before the choice.
        features: the features hash of its data.

    Raises:
        UserError: a record is missing, or cannot be trusted; or as `of`.
    """
    by_run: dict[Run, State] = {}
    for each in itertools.chain.from_iterable(settings.trials):
        path = results / each.run.path
        by_run[each.run] = one = record.check(path, each, features)
        if one.record is None:
            why = f" ({one.why})" if one.why else ""
            raise UserError(f"{path}: {one.state}{why}; train this trial first")
    return of(settings, by_run, features)


def _hash(choice: Choice) -> str:
    content = msgspec.to_builtins(choice)
    return grid.config_hash({name: value for name, value in content.items() if name != "hash"})
