"""`ketscale recommend`: on which simulator and layout of this machine a run trains fastest, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ketscale.analysis import columns, comparison, verdicts
from ketscale.analysis.advice import trials
from ketscale.analysis.advice.trials import Trials
from ketscale.analysis.collected import Collected
from ketscale.analysis.columns import Trained
from ketscale.analysis.comparability import host_class
from ketscale.analysis.comparison import Compared
from ketscale.analysis.intervals import FEWEST
from ketscale.analysis.points import point_of
from ketscale.config import Config, suggestion
from ketscale.errors import UserError
from ketscale.grid import BACKENDS, Run, layout
from ketscale.jobs import records
from ketscale.jobs.costs import Costs, Forecast, between
from ketscale.jobs.costs.records import below, hardware
from ketscale.measure import host
from ketscale.measure.form import Host
from ketscale.words import aligned, counted, duration, spelled

NOTHING = "no record tells, and no trial"


@dataclass(frozen=True)
class Choice:
    """A candidate with its forecast; None if nothing is known of it, and `why` there is none."""

    run: Run
    forecast: Forecast | None
    why: str = ""

    @property
    def name(self) -> str:
        """Simulator and layout."""
        return f"{self.run.simulator} on {self.run.layout}"


@dataclass(frozen=True)
class Recommendation:
    """The candidates, the fastest first; then those of which nothing is known.

    compared: how many times as fast the first is as the second: over rounds of trials of both, else over seeds, as the
    report of their records has it. over: which of them, 'rounds' or 'seeds'. protocol: as it was asked for; one
    with a search is tried as its first trial. cores: of the machine.
    """

    machine: str
    choices: tuple[Choice, ...]
    compared: Compared
    over: str = "seeds"
    protocol: str = ""
    cores: int = 1

    @property
    def known(self) -> tuple[Choice, ...]:
        """The candidates with a forecast."""
        return tuple(choice for choice in self.choices if choice.forecast)

    @property
    def undecided(self) -> str:
        """Why what was measured of the first two decides nothing, as the report says it; '' where it, or a forecast, may."""
        why = verdicts.undecided(self.compared)
        return "" if why == verdicts.FEW else why

    @property
    def apart(self) -> bool:
        """Whether the first is surely faster than the second: by their ratio, else by forecasts that do not overlap.

        If it needs more cores, it must pay: a smaller factor than `verdicts.WORTH` is no reason to use them.
        """
        first, second = self.known[:2]
        ratio = self.compared.ratio
        if self.undecided:
            return False
        if ratio is not None and ratio.low is not None:
            return ratio.low > (verdicts.WORTH if _cores(first) > _cores(second) else 1)
        return not _overlap(first, second)


def recommend(
    config: Config,
    point: Run,
    limit_s: float,
    only: Mapping[str, Collection[str]],
    machine: Host,
    root: Path,
    say: Callable[[str], None],
) -> Recommendation:
    """Compare the simulators and layouts for a run's model, size, batch and protocol on this machine.

    Args:
        point: its simulator, layout and seed do not count.
        limit_s: trials may take so long; 0 for none. They are made if a candidate has no record of this machine.
        only: the names of simulators, or layouts, to choose from (`simulator`, `layout`); by default all of them.
        machine: this machine, as records describe it.
        say: is told what trials failed.

    Raises:
        UserError: the point is not of the config, nothing fits, or the workload's data are not prepared.
    """
    here = hardware(machine)
    # What a search has chosen changes no step, but for a model's size in its settings.
    protocol, point = point.protocol, next(config.trials_of(point), point)
    candidates = _candidates(config, point, only, machine)
    results = root / config.results
    settings = [config.settings(run) for run in candidates]

    def costs() -> Costs:
        found = below([results, results / trials.FOLDER])
        return Costs([one for one in found if one.case.names["machine"] == here], here)

    told, tried = costs(), Trials()
    found = told.forecast(settings)
    if limit_s and any(run not in found or found[run].place != "repeat" for run in candidates):
        # The most promising first: time may be over before all had a turn.
        order = sorted(candidates, key=lambda run: found[run].step_s.middle if run in found else 0.0)
        tried = trials.run(config, order, root, limit_s, say)
        told = costs()
        found = told.forecast(settings)
    choices = []
    for run in candidates:
        failed = tried.failed.get(run, "")
        known = found.get(run) if not failed or run in tried.step_s else None
        choices.append(Choice(run, known, failed or NOTHING * (known is None)))
    choices.sort(key=lambda one: one.forecast.step_s.middle if one.forecast else math.inf)
    pair = [one.run for one in (*choices, *choices)][:2]  # of one candidate nothing is asked
    second, first = (tried.step_s.get(run, {}) for run in reversed(pair))
    if len(first.keys() & second.keys()) >= FEWEST:
        compared, over = Compared(comparison.paired(second, first, comparison.RESOLUTION)), "rounds"
    else:
        compared, over = _reported(config, results, host_class(machine), *pair), "seeds"
    return Recommendation(here, tuple(choices), compared, over, protocol, machine.cores)


def _reported(config: Config, results: Path, host: str, first: Run, second: Run) -> Compared:
    """How many times as fast the first point is as the second on this host, as the report has it."""
    found = records.read(config, results).checked
    trained = [Trained(one.record, config.settings(run)) for run, one in found.items() if one.record]
    here = Collected.of(config, columns.RUNS.of(trained, config), {}, {}).on(host)
    of, over = (here.points.get(point_of(run), ()) for run in (first, second))
    return here.times.speedup(of, over)


def _fits(run: Run, machine: Host) -> bool:
    """Whether a machine has a core, or a GPU, for each thread of a run."""
    on_gpus = BACKENDS[run.backend].device == "gpu"
    enough = run.ranks <= len(machine.gpus) if on_gpus else run.ranks * run.threads <= machine.cores
    return run.nodes == 1 and enough


def _candidates(config: Config, point: Run, only: Mapping[str, Collection[str]], machine: Host) -> list[Run]:
    """The runs that the config's simulators and this machine's layouts allow."""
    if not config.protocols[point.protocol].stepped:
        raise UserError(
            f"{point.model} is not trained by steps with {point.protocol}: no times of steps tell where to run it"
        )
    simulators = list(only["simulator"] or ([*config.simulators] if point.simulator != "none" else ["none"]))
    for name in simulators:
        if name not in (*config.simulators, "none"):
            raise UserError(
                f"--simulators: no simulator is called {name}{suggestion(name, [*config.simulators])}"
            )
    found, why = [], ""
    for name in simulators:
        for text in only["layout"] or host.layouts(machine.cores, len(machine.gpus)):
            run = replace(point, simulator=name, seed=0, **layout(text))
            try:
                config.settings(run)
            except UserError as error:
                why = str(error)
                continue
            if not _fits(run, machine):
                has = f"{counted(machine.cores, 'core')} and {counted(len(machine.gpus), 'GPU')}"
                raise UserError(f"--layouts {text}: this machine has {has}; name layouts that fit it")
            found.append(run)
    if not found:
        raise UserError(f"no simulator and layout fits: {why}")
    return found


def as_text(said: Recommendation) -> str:
    """The recommendation for people."""
    rows = [["simulator", "layout", "step", "whole run", "core time", ""]]
    for choice in said.choices:
        one = choice.forecast
        times = [between(one.step_s), one.whole, duration(_core_s(choice), 2)] if one else ["", "", ""]
        place = "" if one is None or one.place == "repeat" else "estimated, not measured"
        rows.append([choice.run.simulator, choice.run.layout, *times, choice.why or place])
    run = said.choices[0].run
    head = f"{run.model} {run.size}, batch {run.batch}, {said.protocol}, on {said.machine}; 90 % intervals"
    return "\n".join([head, "", *aligned(rows), "", *_answer(said), *_seeds(said)])


def _answer(said: Recommendation) -> list[str]:
    if not said.known:
        return ["nothing is known of any: give trials more --minutes, or train one of them"]
    first, *others = said.known
    if not others:
        return [f"take {first.name}; nothing is known of any other"]
    second = others[0]
    if said.apart:
        return [f"take {first.name}. The runner-up, {second.name}, takes {_times(said)} as long"]
    ratio = said.compared.ratio
    low, high = (ratio.low, ratio.high) if ratio and not said.undecided else (None, None)
    # More cores must pay, as in `apart`.
    if high is not None and high < (1 / verdicts.WORTH if _cores(second) > _cores(first) else 1):
        return [f"take {second.name}. By {said.over} it took {_times(said)} as long as {first.name}"]
    fewest = min((one for one in said.known if _overlap(first, one)), key=_cores)
    faster = high is not None and high < 1
    near = faster or (low is not None and low > 1)
    close = "are too close for more cores" if near else "cannot be told apart"
    why = said.undecided.replace("undecided", "", 1)
    reason = (
        "is the fastest as far as is known"
        if fewest is first and not faster
        else "needs the fewest cores of those that overlap"
    )
    return [
        f"{first.name} and the runner-up, {second.name}, {close}{why} ({_times(said)} as long)",
        f"take {fewest.name}, which {reason}",
    ]


def _seeds(said: Recommendation) -> list[str]:
    """How many seeds are best run: at the least core time, as many at once as the machine has cores for."""
    on_cores = [one for one in said.known if BACKENDS[one.run.backend].device == "cpu"]
    cheapest = min(on_cores, key=_core_s, default=None)
    if cheapest is None or said.cores < 2 * _cores(cheapest):
        return []
    at_once = said.cores // _cores(cheapest)
    dearest = max(on_cores, key=_core_s)
    saved = (
        ""
        if dearest is cheapest
        else f", in {_core_s(cheapest) / _core_s(dearest):.2g} of the core time of {dearest.name}"
    )
    return [f"many seeds: run them side by side on {cheapest.name}, {spelled(at_once)} at a time{saved}"]


def _core_s(choice: Choice) -> float:
    """The core-seconds of the whole run; for a run on GPUs those of the cores that it keeps."""
    assert choice.forecast is not None
    return choice.forecast.wall_s.middle * _cores(choice)


def _cores(choice: Choice) -> int:
    return choice.run.ranks * choice.run.threads


def _overlap(first: Choice, other: Choice) -> bool:
    assert first.forecast is not None and other.forecast is not None
    return other.forecast.step_s.low <= first.forecast.step_s.high


def _times(said: Recommendation) -> str:
    ratio = said.compared.ratio
    if ratio is not None and ratio.low is not None:
        return f"{ratio.value:.2f} times ({ratio.low:.2f} to {ratio.high:.2f}, 95 %, {ratio.n} {said.over})"
    first, second = (choice.forecast for choice in said.known[:2])
    assert first is not None and second is not None
    return f"about {second.step_s.middle / first.step_s.middle:.2f} times"
