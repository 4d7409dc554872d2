"""What a search has chosen for a point of the grid, `grid.CHOSEN`: by the validation of its trials' records, never by a test.

The runs of the point train with it, and their settings have its hash. Imports nothing heavy: the Snakefile asks here.
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
from ketscale.files import write_atomic
from ketscale.grid import Run
from ketscale.measure import record
from ketscale.measure.record import Checked
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
    """The content of the file.

    point: the runs that train with it, without their seeds. metric: that decides on validation data; better: 'up' or 'down'.
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

    @property
    def trial(self) -> Trial:
        """The one that was chosen."""
        return self.trials[self.chosen]


def of(settings: Settings, found: Mapping[Run, Checked], features: str | None) -> Choice:
    """What the records of the trials of a run's point say: of several that are equally good on validation data the one with
    the smaller loss there, then the smaller number.

    Args:
        settings: of the run, before the choice.
        found: of all its trials.

    Raises:
        UserError: no trial was completed, or there are no validation samples.
    """
    metric, name = settings.family.headline, Path(settings.run.name).parent
    trials = list(_trials(settings, found))
    able = {number: each.validation for number, each in enumerate(trials) if each.validation is not None}
    if not able:
        states = Counter(each.why for each in trials)
        said = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        raise UserError(
            f"{name}: none of {counted(len(trials), 'trial')} can be chosen ({said}); give `search` other settings"
        )
    best = (max if metric.better == "up" else min)(able.values())
    equal = [number for number, value in able.items() if value == best]
    losses = {number: math.inf if (loss := trials[number].loss) is None else loss for number in equal}
    chosen = min(equal, key=lambda number: (losses[number], number))
    why = f"{trials[chosen].name} has the best {metric.title} on validation data of {counted(len(able), 'trial')}"
    if len(able) < len(trials):
        why += f"; {len(trials) - len(able)} failed"
    if len(equal) > 1:
        first = "first" if losses[chosen] == math.inf else "one with the smallest loss"
        why += f"; of {len(equal)} with the same it is the {first}"
    made = Choice(str(name), metric.name, str(metric.better), features, trials, chosen, why)
    return msgspec.structs.replace(made, hash=_hash(made))


def _trials(settings: Settings, found: Mapping[Run, Checked]) -> Iterator[Trial]:
    search, metric = settings.protocol.search, settings.family.headline.name
    assert search is not None
    for number, of_seeds in enumerate(settings.trials):
        name, point = of_seeds[0].run.protocol, search.point(settings.run.model, number)
        about = name, {**point.training, **point.model}, [each.hash for each in of_seeds]
        values, losses, why = [], [], ""
        for each in of_seeds:
            made = found[each.run].record
            quality = made.quality if made else None
            value = quality.validation.get(metric) if quality else None
            if quality and isinstance(value, (int, float)):
                values.append(value)
                losses.append(quality.validation.get("loss"))
            else:
                why = why or (f"without {metric}" if quality else found[each.run].state)
        known = [loss for loss in losses if isinstance(loss, (int, float))]
        loss = statistics.fmean(known) if known and len(known) == len(of_seeds) else None
        yield Trial(*about, None if why else statistics.fmean(values), None if why else loss, why)


def make(settings: Settings, results: Path, features: str | None) -> Choice:
    """Read the records of the trials of a run's point below `results`, and write what they choose.

    Raises:
        UserError: a record is missing, or cannot be trusted; or as `of`.
    """
    found = _records(settings, results, features)
    for run, one in found.items():
        if one.record is None:
            why = f" ({one.why})" if one.why else ""
            raise UserError(f"{results / run.path}: {one.state}{why}; train this trial first")
    made = of(settings, found, features)
    write_atomic(
        results / settings.run.choice, msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"
    )
    return made


def read(settings: Settings, results: Path) -> Choice | None:
    """The choice for a run, of these settings before it, as it is written; None if there is none that is whole and of them."""
    try:
        found = msgspec.json.decode((results / settings.run.choice).read_bytes(), type=Choice)
    except (OSError, msgspec.MsgspecError):
        return None
    made = [[each.hash for each in of_seeds] for of_seeds in settings.trials]
    return found if found.hash == _hash(found) and [each.config for each in found.trials] == made else None


def resolved(settings: Settings, results: Path) -> Settings:
    """The settings with what a search has chosen for them; the same without a search, or before there is a choice."""
    found = read(settings, results) if settings.protocol.search else None
    return settings.chosen(found.chosen, found.hash) if found else settings


def outdated(settings: Settings, results: Path, features: str | None) -> bool:
    """Whether there is a choice for a run, of these settings before it, that is not what the records of its trials say now,
    as far as these are there.
    """
    if not (results / settings.run.choice).exists():
        return False
    found = read(settings, results)
    if found is None:
        return True
    checked = _records(settings, results, features)
    if any(each.record is None for each in checked.values()):
        return False
    try:
        return of(settings, checked, features).hash != found.hash
    except UserError:
        return True


def _records(settings: Settings, results: Path, features: str | None) -> dict[Run, Checked]:
    """What was found of each trial of a run."""
    trials = itertools.chain.from_iterable(settings.trials)
    return {each.run: record.check(results / each.run.path, each, features) for each in trials}


def _hash(choice: Choice) -> str:
    content = msgspec.to_builtins(choice)
    return grid.config_hash({name: value for name, value in content.items() if name != "hash"})
