"""The columns of all tables: each is declared here once, and tables, page, docs and `compare` use this declaration.

Imports nothing heavy: the Snakefile imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple

from ketscale.analysis.comparability import host_class
from ketscale.analysis.completeness import code
from ketscale.analysis.heavy import pd
from ketscale.analysis.points import FOUND, Row, metrics, size_axes
from ketscale.config import Config, Settings
from ketscale.config.family import LOSS
from ketscale.files import csv_of
from ketscale.grid import AXES, POINT, Run, canonical
from ketscale.grid.run import INTEGERS
from ketscale.jobs.choice import Choice, Trial
from ketscale.measure.form import Record, Trainability
from ketscale.measure.quiet import BOUNDED_SHARE


class Tried(NamedTuple):
    """A trial of a search, which chose for a run and the other seeds of its point."""

    run: Run
    choice: Choice
    trial: Trial
    node_hours: float | None


@dataclass(frozen=True)
class Trained:
    """A run with a record that can be used, from which columns are taken; `studies` ask for it."""

    record: Record
    settings: Settings
    studies: Sequence[str] = ()

    @cached_property
    def row(self) -> Row:
        """What it has in those columns of runs.csv that every config has."""
        return taken(RUNS, self)

    def metric(self, split: str, name: str) -> Any:
        """A metric of the best weights; None for a protocol with steps."""
        quality = self.record.quality
        return quality and {"validation": quality.validation, "test": quality.test}[split].get(name)

    @property
    def chance(self) -> Any:
        """What guessing gives on the test data."""
        chance = self.settings.family.headline.chance
        return self.metric("test", "chance") if chance == "data" or not self.record.quality else chance

    @property
    def test_samples(self) -> Any:
        """The number of test samples, of which each may be several cases of a share."""
        right = self.record.quality and self.record.quality.right
        return right.samples if right else self.metric("test", "count")

    @property
    def circuit_s(self) -> float | None:
        """The time of the circuits alone in a sampled step, forward and backward; None if it was not measured."""
        spans = self.record.timing.spans.items()
        parts = [one.median_s or 0.0 for name, one in spans if name.startswith("circuit.") and one.count]
        return sum(parts) if parts else None

    @property
    def least_step_s(self) -> float | None:
        """The least that the median step can be without disturbance; the median of a run that nobody disturbed, None if unknown.

        Say others cost the run L seconds at most, and so L / n a step on average. Then at most a quarter of the steps lost more
        than 4 L / n, and a quarter took less than the lower quartile; so no more than half of the undisturbed steps take less
        than the difference of the two.
        """
        record = self.record
        step, quiet = record.timing.step, record.quiet
        cost = quiet.disturbance
        if quiet.quiet or step.median_s is None or record.undisturbed_steps:
            return step.median_s
        if cost is None or cost > BOUNDED_SHARE or record.gpu_hours or self.settings.run.nodes > 1:
            return None
        assert step.q25_s is not None
        # Records of earlier versions watched the whole process.
        watched_s = quiet.watched_s or (record.stopped - record.started).total_seconds()
        least = step.q25_s - 4 * cost * watched_s / (step.count + (record.timing.preempted or 0))
        return least if least > 0 else None

    @property
    def shared_cores(self) -> bool | None:
        """Whether some threads shared a physical core; None if no rank says so and not every rank knows."""
        found = {rank.shared_cores for rank in self.record.machine.ranks}
        return True if True in found else None if None in found else False

    def trained_for(self, count: int | None, before_s: float = 0.0) -> float | None:
        """The time of training and before it, divided by a count.

        None for a run that resumed: its time is that of the rest, and its steps are all.
        """
        return (before_s + self.record.timing.train_s) / count if count and not self.record.resumed else None


@dataclass(frozen=True)
class Column:
    """A column of a table.

    name: in the file. meaning: in words, for the docs. of: how it is taken from what a row is made from, such as `Trained`;
    None where the rows of the table are made with it. heading: on the page, by default the name. unit: of its numbers, such
    as 's' or 'bytes'. shown: whether the page has it among what it says of runs. text: whether it has names, even if no row
    has one.
    """

    name: str
    meaning: str
    of: Callable[[Any], Any] | None = None
    heading: str = ""
    unit: str = ""
    shown: bool = False
    text: bool = False

    @property
    def title(self) -> str:
        """Its heading with the unit in which the page shows its numbers."""
        unit = SHOWN_IN.get(self.unit)
        return (self.heading or self.name.replace("_", " ")) + (f" ({unit[0]})" if unit else "")

    @property
    def factor(self) -> float:
        """What numbers are multiplied by on the page."""
        return SHOWN_IN[self.unit][1] if self.unit in SHOWN_IN else 1.0


SHOWN_IN = {"s": ("ms", 1e3), "bytes": ("MB", 1e-6)}
# Functions give those of several columns that a config has.
Columns = Callable[[Config], Iterable[Column]]


@dataclass(frozen=True)
class Table:
    """A table: its name, what the page says of it, and its columns.

    compares: whether a row also has, in memory alone, what it was taken from, as `FOUND`.
    """

    name: str
    caption: str
    parts: Sequence[Column | Columns]
    compares: bool = False

    def columns(self, config: Config) -> tuple[Column, ...]:
        """The columns for a config."""
        return tuple(c for part in self.parts for c in ([part] if isinstance(part, Column) else part(config)))

    def of(self, made_from: Iterable[Any], config: Config) -> Iterator[dict[str, Any]]:
        """What each of these, such as a `Trained`, has in all columns that say how to take it."""
        taken = [(column.name, column.of) for column in self.columns(config) if column.of]
        for one in made_from:
            row = {name: _written(of(one), config) for name, of in taken}
            yield {**row, FOUND: one} if self.compares else row

    def frame(self, rows: Iterable[Row], config: Config) -> pd.DataFrame:
        """The rows as they are written, with None where there is no value.

        The table of epochs also has whatever columns the runs' own files have.

        Raises:
            ValueError: a row has a value of no column.
        """
        names = [column.name for column in self.columns(config)] + [FOUND] * self.compares
        if self is HISTORY:
            rows = list(rows)
            names += sorted({name for row in rows for name in row} - {*names})
        known, values = {*names}, []
        for row in rows:
            if not row.keys() <= known:
                raise ValueError(f"{self.name}: no columns {sorted(row.keys() - known)}")
            values.append([row.get(name) for name in names])
        return pd.DataFrame(values, columns=names, dtype=object)

    def typed(self, frame: pd.DataFrame, config: Config) -> pd.DataFrame:
        """The same with numbers and text, which are missing where there is no value, or where text is empty."""
        found = frame.replace("", None).infer_objects()
        text = {column.name for column in self.columns(config) if column.text}
        kinds = {
            name: str if name in text else float
            for name in found
            if name != FOUND and (found[name].isna().all() or name in text)
        }
        return found.astype(kinds)


def taken(table: Table, one: Any) -> dict[str, Any]:
    """What one has in those columns of a table that every config has."""
    return {part.name: part.of(one) for part in table.parts if isinstance(part, Column) and part.of}


def _written(value: Any, config: Config) -> Any:
    """A value as tables have it: a run is the path of its record, a Snakemake target."""
    return f"{config.results}/{value.path}" if isinstance(value, Run) else value


def csv(frame: pd.DataFrame) -> bytes:
    """The content of a table's file."""
    names = [str(name) for name in frame if name != FOUND]
    rows = frame[names].itertuples(index=False, name=None)
    return csv_of((dict(zip(names, row, strict=True)) for row in rows), names)


def _sizes(config: Config) -> Iterator[Column]:
    """The sizes of the config's families; a run has none of an axis that its family has not."""
    for name, axis in size_axes(config).items():
        of = partial(lambda name, run: run.settings.sizes.get(name), name)
        yield Column(name, f"Size of the model: {axis.title}", of, axis.title)


def _metrics(config: Config) -> Iterator[Column]:
    """The metrics of the config's families on both splits; the page shows the headline ones of the test."""
    heads = {config.family(workload).headline.name for workload in config.studied}
    for split in ("test", "validation"):
        for name in metrics(config):
            of = partial(Trained.metric, split=split, name=name)
            shown = split == "test" and name in heads
            yield Column(f"{split}_{name}", f"The metric `{name}` on {split} data", of, shown=shown)


def other_metrics(config: Config) -> list[str]:
    """The metrics that some family has besides its headline metric, and the loss."""
    found = {metric.name for workload in config.studied for metric in config.family(workload).metrics[1:]}
    return [name for name in metrics(config) if name in found or name == LOSS]


def _other_metrics(config: Config) -> Iterator[Column]:
    for name in other_metrics(config):
        yield Column(name, f"The metric `{name}` on test data, mean over seeds", partial(_mean, name))


def _mean(name: str, found: Any) -> float | None:
    mean: float | None = found.means[name]
    return mean


def _probed(config: Config) -> Iterator[Column]:
    """What probes find, if a protocol is one."""
    if any(protocol.probe for protocol in config.protocols.values()):
        for name, (meaning, part) in _PROBED.items():
            yield Column(
                name, meaning, partial(lambda of, run: (one := run.record.trainability) and of(one), part)
            )


_PROBED: dict[str, tuple[str, Callable[[Trainability], float]]] = {
    "circuit_qubits": ("Qubits of the circuit that was probed", lambda found: found.qubits),
    "angles": ("Number of its angles that were drawn", lambda found: found.weights),
    "pairs": ("Pairs of an observable and an angle that it depends on", lambda found: found.pairs),
    "gradient_square": ("Mean square of the derivatives of these pairs", lambda found: found.square),
    "gradient_variance": ("Their variance over draws, mean over pairs", lambda found: found.variance),
    "frame_1": ("Frame potential of the final states over Haar's, t = 1", lambda found: found.frame[0]),
    "frame_2": ("The same with t = 2", lambda found: found.frame[1]),
    "entanglement": ("Mean of Meyer and Wallach's Q", lambda found: found.entanglement),
}  # fmt: skip


def _axis(name: str, meaning: str) -> Column:
    return Column(name, meaning, lambda run: getattr(run.settings.run, name), text=name not in INTEGERS)


def _ends(low: str, high: str, of: str = "its 95 % interval", unit: str = "") -> tuple[Column, Column]:
    """The columns of an interval."""
    return Column(low, f"Lower end of {of}", unit=unit), Column(high, "Upper end", unit=unit)


def _part(name: str, estimate: str, part: str, meaning: str, unit: str = "") -> Column:
    """A part of an estimate that a row's source has, or None."""
    found = attrgetter(estimate)
    return Column(name, meaning, lambda row: (one := found(row)) and getattr(one, part), unit=unit)


# fmt: off
_AXES = {column.name: column for column in (
    _axis("workload", "The workload's name in the config"),
    _axis("model", "The model's name in the config, or its kind"),
    _axis("size", "The model's size as it is in paths, such as `q4-l3`"),
    _axis("batch", "The global number of samples in a step"),
    _axis("simulator", "The simulator's name in the config; `none` for a classical model"),
    _axis("backend", "The backend: where ranks run and how they talk"),
    _axis("nodes", "Number of nodes"),
    _axis("ranks", "Number of ranks on all nodes together"),
    _axis("threads", "Threads of each rank"),
    _axis("layout", "Backend, nodes, ranks and threads, such as `mpi-n1r2t1`"),
    _axis("protocol", "The protocol's name in the config"),
    _axis("seed", "The run's seed"),
)}
FAMILY = Column("family", "The problem family of the workload", lambda run: run.settings.family.name, text=True)
STUDIES = Column("studies", "The studies that ask for the run", lambda run: " ".join(run.studies), text=True)
STATUS = Column("status", "`completed`, `diverged`, `out_of_memory` or `timed_out`", lambda run: run.record.status)
TIMED = Column("timed", "Whether the protocol asks for a machine to itself", lambda run: run.settings.protocol.timed)
QUIET = Column("quiet", "Whether the run was timed alone, on each of its hosts", lambda run: run.record.quiet.quiet)
FEATURES = Column("features", "`cached` or `inline`", lambda run: run.settings.protocol.features)
HARDWARE = Column("hardware", "The class of host, which is the cluster's node type or else the host itself, with its processor, cores, memory (to 5 %) and models of GPUs; times are compared only where it is equal", lambda run: host_class(run.record.machine))
CODE = Column("code", "Version and commit of the code that trained; `+dirty` where it had other changes", lambda run: code(run.record))
STUDY = Column("study", "The study's name in the config", text=True)
KIND = Column("kind", "The study's kind", text=True)

# What names a run, and what names a point.
RUN: tuple[Column | Columns, ...] = (*(_AXES[name] for name in AXES), FAMILY, _sizes, _AXES["layout"])
AT: tuple[Column | Columns, ...] = (*(_AXES[name] for name in POINT), FAMILY, _sizes)

RUNS = Table("runs", "One row per run: axes, quality, times, memory, and whether the machine was quiet.", (
    *RUN, STUDIES, STATUS,
    Column("reason", "Why the run was not completed", lambda run: run.record.reason),
    Column("resumed", "How often it went on from a checkpoint", lambda run: run.record.resumed),
    Column("cohort", "How many runs one process trained together, this one included: 1 where it was alone", lambda run: 1 + len(run.record.cohort)),
    TIMED,
    Column("precision", "`fp32`, `fp64` or `amp`", lambda run: run.settings.protocol.precision),
    FEATURES,
    Column("mistake", "The misconfiguration that the protocol makes on purpose", lambda run: run.settings.protocol.mistake),
    _metrics, _probed,
    Column("test_chance", "What guessing gives on the test data", lambda run: run.chance),
    Column("test_samples", "Number of test samples", lambda run: run.test_samples),
    Column("epochs", "Number of epochs that were trained", lambda run: run.record.quality and run.record.quality.epochs, shown=True),
    Column("best_epoch", "The epoch with the best validation", lambda run: run.record.quality and run.record.quality.best_epoch),
    Column("planned_epochs", "The number that the protocol allows", lambda run: run.settings.protocol.epochs),
    Column("split", "The unit that is never in two of training, validation and test", lambda run: run.record.split.by),
    Column("fold", "The fold that is the test set", lambda run: run.record.split.fold),
    Column("folds", "Number of folds", lambda run: run.record.split.folds),
    Column("shared", "Samples of validation and test that equal one of a part before theirs (training, validation, test), or have steps or a group in common with one", lambda run: run.record.split.shared),
    Column("step_s", "Median of the steady steps", lambda run: run.record.timing.step.median_s, "step", "s", shown=True),
    Column("step_q25_s", "Lower quartile of the steady steps", lambda run: run.record.timing.step.q25_s, unit="s"),
    Column("step_q75_s", "Upper quartile of the steady steps", lambda run: run.record.timing.step.q75_s, unit="s"),
    Column("step_count", "Number of steady steps", lambda run: run.record.timing.step.count),
    Column("circuit_s", "Circuits alone in a sampled step, forward and backward", lambda run: run.circuit_s, unit="s"),
    Column("least_step_s", "The least that this median can be on a quiet machine: the median itself if nobody disturbed its steps; empty if that is unknown", attrgetter("least_step_s"), unit="s"),
    Column("first_step_s", "The first step, with compiling", lambda run: run.record.timing.first_step_s, unit="s"),
    Column("startup_s", "From the start of the process until data are read", lambda run: run.record.timing.startup_s, unit="s"),
    Column("data_s", "Opening and verifying the data", lambda run: run.record.timing.data_s, unit="s"),
    Column("validation_s", "Median of a validation pass", lambda run: run.record.timing.validation_s, unit="s"),
    Column("steps", "All steps", lambda run: run.record.timing.steps),
    Column("steps_per_epoch", "Steps in an epoch", lambda run: run.record.timing.steps_per_epoch),
    Column("epoch_s", "Median wall time of whole epochs of steady steps, validation left out; if there was none, steps in an epoch times the mean steady step", lambda run: run.record.timing.epoch_s, unit="s"),
    Column("epoch_estimated", "Whether it is such an estimate", lambda run: run.record.timing.epoch_s is not None and not run.record.timing.epoch.count),
    Column("samples_per_s", "Throughput at the median step", lambda run: run.record.timing.samples_per_s, "samples/s", shown=True),
    Column("sample_work", "Arithmetic of a sample relative to other sizes, in families where a larger batch needs a larger model", lambda run: run.settings.family.work and run.settings.family.work(run.settings.sizes)),
    Column("train_s", "Wall time of the training loop, of a cohort until the run had ended", lambda run: run.record.timing.train_s, unit="s"),
    Column("fit_s", "The one phase of a model that is fitted, with all that it tried; such a model has no steps", lambda run: run.record.timing.fit_s, unit="s"),
    Column("step_with_first_s", "Training time divided by steps, as some publications report it", lambda run: run.trained_for(run.record.timing.steps), unit="s"),
    Column("step_with_start_s", "The same with start-up and data", lambda run: run.trained_for(run.record.timing.steps, run.record.timing.startup_s + run.record.timing.data_s), unit="s"),
    Column("epoch_by_planned_s", "Training time divided by planned epochs", lambda run: run.trained_for(run.settings.protocol.epochs), unit="s"),
    Column("peak_rss_bytes", "Largest resident memory, summed over ranks", lambda run: sum(rank.peak_rss_bytes or 0 for rank in run.record.machine.ranks) or None, "memory", "bytes", shown=True),
    Column("peak_device_bytes", "Largest memory of a GPU, of the rank with most", lambda run: max(rank.peak_device_bytes or 0 for rank in run.record.machine.ranks) or None, unit="bytes"),
    QUIET,
    Column("others_share", "Share of the cores that other processes used", lambda run: run.record.quiet.others_share),
    Column("steal_share", "Share of the cores that the hypervisor gave to other guests", lambda run: run.record.quiet.steal_share),
    Column("throttled_share", "Share of the run's time that a CPU quota stopped it, of all its CPUs together; empty where no control group is seen", lambda run: run.record.quiet.throttled_share),
    Column("stalled_share", "Share of the training in which nothing went on, by the times of its steps; empty where they do not tell", lambda run: run.record.quiet.stalled_share),
    Column("oversubscribed", "Whether the run had more threads than cores", lambda run: run.record.quiet.oversubscribed),
    Column("busy_why", "Why it was not timed alone", lambda run: run.record.quiet.why),
    Column("host", "Name of the host of rank 0", lambda run: run.record.machine.host),
    Column("cpu", "Its processor", lambda run: run.record.machine.cpu),
    Column("cores", "Its logical cores", lambda run: run.record.machine.cores),
    Column("memory_bytes", "Its memory", lambda run: run.record.machine.memory_bytes, unit="bytes"),
    Column("cache_bytes", "The last-level cache of a core", lambda run: run.record.machine.cache_bytes, unit="bytes"),
    Column("shared_cores", "Whether threads of the run shared a physical core", lambda run: run.shared_cores),
    Column("gpus", "Models of the GPUs", lambda run: "; ".join(sorted(gpu.name for gpu in run.record.machine.gpus))),
    HARDWARE, CODE,
    Column("packages", "Versions of the packages that matter", lambda run: " ".join(f"{name}={version}" for name, version in sorted(run.record.packages.items()))),
    Column("mpi_library", "The MPI library", lambda run: run.record.mpi_library),
    Column("slurm_job_id", "The SLURM job", lambda run: run.record.slurm_job_id),
    Column("started", "Start of the run, UTC", lambda run: run.record.started.isoformat()),
    Column("stopped", "Its end, UTC", lambda run: run.record.stopped.isoformat()),
    Column("parameters", "Number of trainable parameters", lambda run: run.record.parameters),
    Column("gradient_bytes", "What an all-reduce of the gradients sums on each rank", lambda run: run.record.gradient_bytes, unit="bytes"),
    Column("config_hash", "SHA-256 of the resolved settings", lambda run: run.record.config_hash),
    Column("data_hash", "SHA-256 of the data", lambda run: run.record.data_hash),
    Column("features_hash", "SHA-256 of the prepared data", lambda run: run.record.features_hash),
    Column("weights_hash", "SHA-256 of the trained weights", lambda run: run.record.weights_hash),
    Column("node_hours", "Nodes times hours", lambda run: run.record.node_hours),
    Column("gpu_hours", "GPUs times hours", lambda run: run.record.gpu_hours),
    Column("replayed", "Steps that a GPU took as CUDA graphs", lambda run: run.record.replayed),
    Column("imported", "The modules of the package that the run imported, with hashes of their bytecode; times are compared only where they agree", lambda run: run.record.code.imported),
))

COMPLETENESS = Table("completeness", "Every run of the study and its state. Missing, stale and refused runs are in no other table. Diverged, out-of-memory and timed-out runs are results. No median includes the first two.", (
    Column("run", "The path of the run's record", attrgetter("run")), STUDIES,
    Column("state", "`completed`, `diverged`, `out_of_memory`, `timed_out`, `missing`, `stale` or `refused`", attrgetter("state")),
    Column("why", "The reason, where the run was not completed", attrgetter("why"), text=True), CODE,
))

# The class of hosts of a row, in tables of studies.
ON = Column("on", "The class of hosts that the row is of, if some point of the study was measured on several; else empty", text=True)

ANSWERS = Table("answers", "What each study says about its question, with a row for each point that it tells of. Intervals are of 95 % each, in `comparison` all together; verdicts hold for all comparisons of a study together.", (
    replace(STUDY, of=attrgetter("part.study.name")), replace(KIND, of=attrgetter("part.study.kind")), replace(ON, of=attrgetter("part.host")),
    Column("question", "The study's question, from the config", attrgetter("part.study.question")),
    Column("answer", "The answer in one sentence, computed from the study's rows", attrgetter("part.answer.text")),
    Column("verdict", "The word for the whole answer", attrgetter("part.answer.verdict"), text=True),
    Column("point", "What the row tells of", attrgetter("told.point"), text=True),
    Column("compared_with", "What it is compared with; empty if with nothing", attrgetter("told.beside"), text=True),
    _part("effect", "told.effect", "value", "The ratio, difference or value, in its unit"),
    Column("unit", "`times as fast` and `times as long` of ratios, `points` of differences of shares, `%` of shares, `mean rank`, else the metric's", attrgetter("told.unit"), text=True),
    _part("low", "told.effect", "low", "Lower end of its 95 % interval"), _part("high", "told.effect", "high", "Upper end"),
    _part("n", "told.effect", "n", "Number of seeds in it"),
    Column("verdict_of_point", "What its interval says", attrgetter("told.verdict"), text=True),
))


def _speedup(name: str, over: str, reference: str) -> tuple[Column, ...]:
    return (
        Column(name, f"Speedup of the typical run over {over}, from pairs of the same seed"),
        *_ends(f"{name}_low", f"{name}_high", "its 95 % interval; none below three seeds"),
        Column(f"{name}_n", "Number of pairs"),
        Column(f"{name}_outliers", "Number of outliers among the pairs, which below 15 pairs are left out"),
        Column(reference, "The point that it is over"),
    )


SCALING = Table("scaling", "One row per point of every study of speed. Speedups pair runs of the same seed on the same kind of host, with their 95 % interval (none below 3 seeds). Times are medians. Failed runs, and busy ones beyond known bounds, are counted, but no median includes them. If all seeds were such, or none finished within its protocol's time, the median of what they measured is shown and flagged.", (
    STUDY, KIND,
    ON,
    *AT, FEATURES,
    Column("workers", "Ranks times threads; on GPUs the ranks"),
    Column("varied", "What the study varies"),
    Column("value", "The point's value of it", text=True),
    Column("step_s", "Median over seeds of the steady step", unit="s"),
    *_ends("step_low_s", "step_high_s", "the 95 % interval of the typical run's time, over seeds; none below three", unit="s"),
    Column("first_s", "Median of the first step, with compiling", unit="s"),
    Column("circuit_s", "Median of the circuits alone", unit="s"),
    Column("epoch_s", "Median over seeds of the time of an epoch", unit="s"),
    Column("epoch_estimated", "Whether a seed had no whole epoch, so that it is an estimate by its mean step"),
    Column("samples_per_s", "Throughput at the median step"),
    Column("cost_s", "Core-seconds (on GPUs, GPU-seconds) of 1,000 samples at the median step", unit="core-s"),
    Column("n", "Number of seeds in the median"),
    Column("timed_steps", "The smallest number of steady steps of a seed"),
    Column("busy", "Number of seeds on a busy machine that no median includes, or of all if there is no other"),
    Column("timed_out", "Number of seeds that timed out"),
    Column("failed", "Number of seeds that diverged or ran out of memory"),
    Column("absent", "Number of seeds without a record"),
    Column("flag", "Why the point is not ideal, such as `busy`, `bounded` (busy within known bounds), `timed_out`, `untimed` or `mixed` (runs that are not comparable), or so of its reference", text=True),
    Column("why", "Why there is no median or no speedup, such as other code, packages or hosts", text=True),
    *_speedup("speedup_same", "its reference: the same simulator on one rank and one thread, in `weak` with its share of the batch, in `mistakes` one fair rank, in `changes` the first point. In `weak` it is the gain in throughput, in `changes` that of a sample", "same_reference"),
    Column("same_step_s", "Median over seeds of the steady step of this reference", unit="s"),
    Column("verdict", "What the interval of this speedup says, all comparisons of the study together; in `mistakes`, of how much slower a step is", text=True),
    *_speedup("speedup_best_serial", "the best that one process does on at most as many cores, with any simulator", "best_serial_reference"),
    Column("efficiency", "Speedup, or gain in throughput, as a share of the number of workers"),
    Column("karp_flatt", "Serial fraction by Karp and Flatt"),
    Column("dt", "Step of the simulator, in units of simulated time"),
    Column("error", "Largest error of the simulator"),
    Column("negativity", "How far its states are from physical ones"),
    Column("difference", "Largest relative difference of the first losses from the baseline's"),
    Column("parity", "The precisions in which the same numbers were proved for this point, or `not run`"),
    HARDWARE, CODE,
), compares=True)

LAWS = Table("laws", "Parameters of scaling laws, fitted by seed to at least two numbers of workers more than the law has parameters, with a core or GPU each, with 95 % intervals over seeds.", (
    STUDY, KIND, *(_AXES[name] for name in ("workload", "model", "size", "batch", "simulator")),
    Column("series", "The points that the law is fitted to"), _AXES["protocol"],
    Column("law", "Amdahl's and the universal scalability law (USL) of strong scaling, Gustafson's of weak"),
    Column("parameter", "Name of the law's parameter"),
    Column("estimate", "What is typical of the seeds"), *_ends("low", "high"),
    Column("n", "Number of seeds"),
    Column("points", "Number of points in the fit"),
    HARDWARE, CODE,
))

QUALITY = Table("quality", "The headline metric on test data with the best weights, with its 95 % interval over seeds and test samples. Each model has the configuration that does best on validation data, beside the best of its controls.", (
    replace(STUDY, of=attrgetter("study")), *AT,
    Column("splits", "Number of splits of the same data that are joined", attrgetter("splits")),
    Column("n", "Number of seeds that were completed, of all splits", attrgetter("n")),
    Column("failed", "Number of seeds that were not", attrgetter("failed")),
    Column("parameters", "Number of trainable parameters", attrgetter("parameters")),
    Column("train_s", "Median time of training, of `cohort` runs together", attrgetter("train_s"), unit="s"),
    Column("cohort", "The most runs that one process trained together", attrgetter("cohort")),
    Column("metric", "The headline metric of the family", attrgetter("metric.name")),
    _part("value", "reached", "value", "Its estimate over splits, seeds and test samples, on test data with the best weights"),
    _part("value_low", "reached", "low", "Lower end of its 95 % interval"), _part("value_high", "reached", "high", "Upper end"),
    Column("chance", "What guessing gives", attrgetter("chance")),
    Column("shared", "The most samples of validation and test, over its runs, that have something in common with a part before theirs", attrgetter("shared")),
    _other_metrics,
    Column("epochs", "Mean number of epochs", lambda found: found.means["epochs"]),
    Column("why", "Why there is no estimate, such as other code or data", attrgetter("why"), text=True),
    Column("chosen", "Whether it is the model's configuration that does best on validation data, and so is compared", attrgetter("chosen")),
    Column("trials", "Number of trials of its search, or of settings that a fitted model tries by itself; 0 if nothing was searched", lambda found: found.budget and found.budget.trials),
    Column("tried", "How many settings it was chosen from, on validation data", lambda found: found.budget and found.budget.tried),
    Column("control", "The best of its controls on validation data, that it is compared with; without one the best baseline, or `guessing`", attrgetter("beside"), text=True),
    _part("control_value", "theirs", "value", "The control's estimate"),
    Column("control_parameters", "The control's trainable parameters", attrgetter("their_parameters")),
    Column("control_trials", "The same of the control", lambda found: found.their_budget and found.their_budget.trials),
    Column("control_tried", "How many settings the control was chosen from", lambda found: found.their_budget and found.their_budget.tried),
    _part("effect", "effect", "value", "How much more the model has than its control, from pairs of the same seed and test sample"),
    _part("effect_low", "effect", "low", "Lower end of its 95 % interval; in `comparison` it holds together with those of the other data sets"), _part("effect_high", "effect", "high", "Upper end"),
    Column("unit", "`points` of a difference of shares, else `times` of a ratio", attrgetter("unit"), text=True),
    Column("pairs", "Number of pairs of seeds", lambda found: found.effect.n if found.effect else 0 if found.beside else None),
    Column("verdict", "What the interval says, all comparisons of the study together", attrgetter("verdict"), text=True),
    Column("baseline", "The baseline of the data that does best on validation data", attrgetter("standard"), text=True),
    _part("baseline_value", "standing", "value", "The baseline's estimate, on the same test data"),
    _part("baseline_low", "standing", "low", "Lower end of its 95 % interval"), _part("baseline_high", "standing", "high", "Upper end"),
    _part("over_baseline", "over", "value", "How much more the model has than the baseline: `points` of a share, else `times`"),
    _part("over_baseline_low", "over", "low", "Lower end of its 95 % interval"), _part("over_baseline_high", "over", "high", "Upper end"),
), compares=True)

PARITY = Table("parity", "Comparisons of the first 20 losses of runs that must train alike. The limits are 1e-9 across simulators and 1e-10 across backends, ranks and threads in fp64, and 1e-3 in fp32. A run beyond its limit is refused.", tuple(
    Column(name, meaning, attrgetter(name)) for name, meaning in {
        "run": "A run's record",
        "reference": "The record that it is compared with",
        "precision": "`fp64` or `fp32`",
        "steps": "Number of first losses that were compared",
        "difference": "Largest relative difference",
        "limit": "The limit for it",
        "held": "Whether the difference is within the limit",
    }.items()
), compares=True)

SPANS = Table("spans", "The exclusive time of each part of a sampled step.", (
    *RUN, STUDIES, STATUS, QUIET, TIMED,
    Column("span", "The part of a step"),
    Column("median_s", "Median of its exclusive time", unit="s"),
    Column("q25_s", "Lower quartile", unit="s"),
    Column("q75_s", "Upper quartile", unit="s"),
    Column("mean_s", "Mean", unit="s"),
    Column("count", "Number of sampled steps with it"),
    Column("sampled_step_s", "Median of whole sampled steps", lambda run: run.record.timing.sampled_step.median_s, unit="s"),
))

HISTORY = Table("history", "Losses and metrics of each epoch, for the runs of accuracy studies.", (
    *RUN,
    Column("epoch", "Number of the epoch"),
    Column("step", "Number of steps up to its end"),
))

TRIALS = Table("trials", "The trials of each search: what was drawn, and what it reached on validation data, which alone decides; tests are not looked at.", (
    *(replace(_AXES[name], of=attrgetter(f"run.{name}")) for name in POINT),
    Column("trial", "The trial's protocol, as it is in paths", attrgetter("trial.name"), text=True),
    Column("settings", "What was drawn, as JSON", lambda of: canonical(of.trial.settings), text=True),
    Column("metric", "The headline metric of the family", attrgetter("choice.metric"), text=True),
    Column("validation", "Its mean over the search's seeds on validation data", attrgetter("trial.validation")),
    Column("loss", "The loss there, which decides between equals", attrgetter("trial.loss")),
    Column("why", "Why it cannot be chosen", attrgetter("trial.why"), text=True),
    Column("node_hours", "Its node-hours, its share of those of a process that trained several", attrgetter("node_hours")),
    Column("chosen", "Whether the runs of the point train with its settings", lambda of: of.trial is of.choice.trial),
))

CURVES = Table("curves", "What trained models do over time, for the runs of accuracy studies: each point's seed with the best headline metric on validation data.", (
    *RUN,
    Column("curve", "Name of the curve, a column of the run's `curves.csv`"),
    Column("panel", "The panel of the figure that it is drawn in"),
    Column("time", "Time"),
    Column("value", "Value at that time"),
))
# fmt: on

# Each NAME is tables/NAME.csv in the results folder. Every config has all of them; some may be empty.
TABLES = {
    table.name: table
    for table in (
        RUNS,
        COMPLETENESS,
        ANSWERS,
        SCALING,
        LAWS,
        QUALITY,
        TRIALS,
        PARITY,
        SPANS,
        HISTORY,
        CURVES,
    )
}
