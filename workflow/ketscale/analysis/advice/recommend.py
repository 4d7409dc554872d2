"""`ketscale recommend`: on which simulator and layout of this machine a run trains fastest, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ketscale.analysis import columns, comparison, verdicts
from ketscale.analysis.advice import scaled, trials
from ketscale.analysis.advice.trials import Trials
from ketscale.analysis.collected import Collected
from ketscale.analysis.columns import Trained
from ketscale.analysis.comparability import host_class
from ketscale.analysis.intervals import FEWEST, Estimate
from ketscale.analysis.points import point_of
from ketscale.config import Config, suggestion
from ketscale.errors import UserError
from ketscale.grid import BACKENDS, Run, layout
from ketscale.jobs import records
from ketscale.jobs.costs import samples
from ketscale.jobs.costs.features import hardware
from ketscale.jobs.costs.forecast import Forecast, Forecaster
from ketscale.jobs.costs.interval import between
from ketscale.measure.form import Host
from ketscale.words import aligned


@dataclass(frozen=True)
class Choice:
    """A candidate with its forecast; None if nothing is known of it, and `why` there is none.

    fits: whether this machine has a core, or a GPU, for each of its threads.
    """

    run: Run
    forecast: Forecast | None
    why: str = ""
    fits: bool = True

    @property
    def name(self) -> str:
        """Simulator and layout, and whether its time is planned by the model."""
        mark = f" ({scaled.MARK})" if self.forecast and self.forecast.scaled else ""
        return f"{self.run.simulator} on {self.run.layout}{mark}"


@dataclass(frozen=True)
class Recommendation:
    """The candidates, the fastest first; then those of which nothing is known, and those that do not fit this machine.

    unplanned: why candidates on more ranks than the records are not planned by the model.
    ratio: how many times as long the second takes as the first: over rounds of trials of both, else over seeds, as the
    report of their records has it; None without three. over: which of them, 'rounds' or 'seeds'.
    """

    machine: str
    choices: tuple[Choice, ...]
    ratio: Estimate | None
    unplanned: tuple[str, ...] = ()
    over: str = "rounds"

    @property
    def known(self) -> tuple[Choice, ...]:
        """The candidates with a forecast that fit this machine."""
        return tuple(choice for choice in self.choices if choice.forecast and choice.fits)

    @property
    def apart(self) -> bool:
        """Whether the first is surely faster than the second, by a ratio or by intervals that do not overlap.

        If it needs more cores, it must pay: a smaller factor than `verdicts.WORTH` is no reason to use them.
        """
        first, second = self.known[:2]
        assert first.forecast is not None and second.forecast is not None
        if self.ratio is not None and self.ratio.low is not None:
            return self.ratio.low > (verdicts.WORTH if _cores(first) > _cores(second) else 1)
        return first.forecast.step_s.high < second.forecast.step_s.low


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
    candidates = _candidates(config, point, only, machine)
    results = root / config.results

    settings = [config.settings(run) for run in candidates]

    def forecaster() -> Forecaster:
        found = samples.below([results, results / trials.FOLDER])
        return Forecaster([one for one in found if one.case.names["machine"] == here], here)

    told, tried = forecaster(), Trials()
    found = told.of_runs(settings)
    fitting = [run for run in candidates if _fits(run, machine)]
    unmeasured = [run for run in fitting if run not in found or found[run].place != "repeat"]
    if unmeasured and limit_s:
        # The most promising first: time may be over before all had a turn.
        order = sorted(fitting, key=lambda run: found[run].step_s.middle if run in found else 0.0)
        tried = trials.run(config, order, root, limit_s, say)
        told = forecaster()
        found = told.of_runs(settings)
    choices = [
        Choice(
            run,
            found.get(run),
            tried.failed.get(run, "" if run in found else "no record tells, and no trial"),
            run in fitting,
        )
        for run in candidates
        if run not in tried.failed or run in tried.step_s
    ]
    choices += [Choice(run, None, why) for run, why in tried.failed.items() if run not in tried.step_s]
    choices.sort(
        key=lambda choice: (
            not choice.fits,
            choice.forecast.step_s.middle if choice.forecast else float("inf"),
        )
    )
    why = tuple(told.unplanned(settings).values())
    ratio, over = _ratio(choices, tried), "rounds"
    if ratio is None and len(choices) > 1:
        ratio, over = (
            _reported(config, results, host_class(machine), *(one.run for one in choices[:2])),
            "seeds",
        )
    return Recommendation(here, tuple(choices), ratio, why, over)


def _reported(config: Config, results: Path, host: str, first: Run, second: Run) -> Estimate | None:
    """How many times as long the second takes as the first on this host, as the report has it; None without an interval."""
    found = records.read(config, results).checked
    runs = [Trained(one.record, config.settings(run)) for run, one in found.items() if one.record]
    here = Collected.of(config, columns.RUNS.of(runs, config), {}, {}).on(host)
    of, over = (here.points.get(point_of(run), ()) for run in (first, second))
    compared = here.times.speedup(of, over)
    return None if verdicts.undecided(compared) else compared.ratio


def _fits(run: Run, machine: Host) -> bool:
    on_gpus = BACKENDS[run.backend].device == "gpu"
    enough = run.ranks <= len(machine.gpus) if on_gpus else run.ranks * run.threads <= machine.cores
    return run.nodes == 1 and enough


def _candidates(config: Config, point: Run, only: Mapping[str, Collection[str]], machine: Host) -> list[Run]:
    """The runs that the config's simulators and this machine's layouts allow."""
    config.settings(point)
    simulators = list(only["simulator"] or ([*config.simulators] if point.simulator != "none" else ["none"]))
    for name in simulators:
        if name not in (*config.simulators, "none"):
            raise UserError(
                f"--simulators: no simulator is called {name}{suggestion(name, [*config.simulators])}"
            )
    for text in only["layout"]:
        backend = BACKENDS.get(layout(text)["backend"])
        if backend and backend.device == "gpu" and not machine.gpus:
            raise UserError(f"--layouts {text}: this machine has no GPU; name layouts of its cores")
    found, why = [], ""
    for name in simulators:
        for text in only["layout"] or trials.layouts(machine.cores, len(machine.gpus)):
            run = replace(point, simulator=name, seed=0, **layout(text))
            try:
                config.settings(run)
            except UserError as error:
                why = str(error)
            else:
                found.append(run)
    if not found:
        raise UserError(f"no simulator and layout fits: {why}")
    return found


def _ratio(choices: Sequence[Choice], tried: Trials) -> Estimate | None:
    if len(choices) < 2:
        return None
    first, second = (tried.step_s.get(choice.run, {}) for choice in choices[:2])
    common = first.keys() & second.keys()
    return comparison.paired(second, first, comparison.RESOLUTION) if len(common) >= FEWEST else None


def as_text(said: Recommendation) -> str:
    """The recommendation for people."""
    rows = [["simulator", "layout", "step", "whole run", ""]]
    for choice in said.choices:
        one = choice.forecast
        bound = "at most " if one and one.at_most else ""
        times = [between(one.step_s), f"{bound}{between(one.wall_s)}"] if one else ["", ""]
        rows.append([choice.run.simulator, choice.run.layout, *times, _notes(choice)])
    run = said.choices[0].run
    head = f"{run.model} {run.size}, batch {run.batch}, {run.protocol}, on {said.machine}; 90 % intervals"
    forecasts = [choice.forecast for choice in said.choices if choice.forecast]
    beyond = scaled.lines(forecasts, said.unplanned)
    return "\n".join([head, "", *aligned(rows), "", *([*beyond, ""] if beyond else []), *_answer(said)])


def _notes(choice: Choice) -> str:
    one = choice.forecast
    place = "" if one is None or one.place == "repeat" else "estimated, not measured"
    known = choice.why or (scaled.MARK if one and one.scaled else place)
    return "; ".join(filter(None, (known, "" if choice.fits else "does not fit this machine")))


def _answer(said: Recommendation) -> list[str]:
    if not any(choice.fits for choice in said.choices):
        return ["this machine can run none of them: name layouts that fit it"]
    if not said.known:
        return ["nothing is known of any: give trials more --minutes, or train one of them"]
    first, *others = said.known
    if not others:
        return [f"take {first.name}; nothing is known of any other"]
    second = others[0]
    if said.apart:
        return [f"take {first.name}. The runner-up, {second.name}, takes {_times(said)} as long"]
    if said.ratio is not None and said.ratio.high is not None and said.ratio.high < 1:
        return [f"take {second.name}. By {said.over} it took {_times(said)} as long as {first.name}"]
    alike = [first, *(choice for choice in others if _overlap(first, choice))]
    fewest = min(alike, key=_cores)
    faster = said.ratio is not None and said.ratio.low is not None and said.ratio.low > 1
    close = "are too close for more cores" if faster else "cannot be told apart"
    return [
        f"{first.name} and the runner-up, {second.name}, {close} ({_times(said)} as long)",
        f"take {fewest.name}, "
        + (
            "which is the fastest as far as is known"
            if fewest is first
            else "which needs the fewest cores of those that overlap"
        ),
    ]


def _cores(choice: Choice) -> int:
    return choice.run.ranks * choice.run.threads


def _overlap(first: Choice, other: Choice) -> bool:
    assert first.forecast is not None and other.forecast is not None
    return other.forecast.step_s.low <= first.forecast.step_s.high


def _times(said: Recommendation) -> str:
    if said.ratio is not None and said.ratio.low is not None:
        ratio = said.ratio
        return f"{ratio.value:.2f} times ({ratio.low:.2f} to {ratio.high:.2f}, 95 %, {ratio.n} {said.over})"
    first, second = (choice.forecast for choice in said.known[:2])
    assert first is not None and second is not None
    return f"about {second.step_s.middle / first.step_s.middle:.2f} times"
