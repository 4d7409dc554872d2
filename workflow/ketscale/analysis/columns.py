"""The columns of all tables: each is declared here once, and tables, page, docs and `compare` use this declaration.

Imports nothing heavy: the Snakefile imports this.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

from ketscale.analysis.comparability import host_class
from ketscale.analysis.heavy import pd
from ketscale.analysis.points import Row, metrics, size_axes
from ketscale.config import Config, Settings
from ketscale.files import csv_of
from ketscale.grid import AXES, POINT
from ketscale.grid.run import INTEGERS
from ketscale.measure.form import Record
from ketscale.measure.quiet import BOUNDED_SHARE


@dataclass(frozen=True)
class Trained:
    """A run with a record that can be used, from which columns are taken; `studies` ask for it."""

    record: Record
    settings: Settings
    studies: Sequence[str] = ()

    @cached_property
    def row(self) -> Row:
        """What it has in those columns of runs.csv that every config has."""
        return {part.name: part.of(self) for part in RUNS.parts if isinstance(part, Column) and part.of}

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
    def least_step_s(self) -> float | None:
        """The least median step without disturbance; that of a run that was not disturbed; None if unknown.

        Say others cost the run L seconds at most, and so L / n a step on average. Then at most a quarter of the steps lost more
        than 4 L / n, and a quarter took less than the lower quartile; so at most half of the undisturbed steps take less
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
        shares = {rank.shared_cores for rank in self.record.machine.ranks}
        return True if True in shares else None if None in shares else False


def code(record: Record) -> str:
    """The code that made a record: version and commit, marked where the tree was dirty."""
    version = record.code
    return f"{version.version} {(version.commit or 'no commit')[:10]}{'+dirty' if version.dirty else ''}"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    name: in the file. meaning: in words, for the docs. of: how it is computed from a row's source, such as `Trained`;
    None where the rows of the table are made with it. heading: on the page, by default the name. unit: of its numbers, such
    as 's', 'bytes' or 'seeds'. page: whether the report has it. text: whether it has names, even if no row has one.
    """

    name: str
    meaning: str
    of: Callable[[Any], Any] | None = None
    heading: str = ""
    unit: str = ""
    page: bool = False
    text: bool = False

    @property
    def title(self) -> str:
        """Its heading; bytes are shown as MB."""
        return (self.heading or self.name.replace("_", " ")) + (" (MB)" if self.unit == "bytes" else "")

    @property
    def factor(self) -> float:
        """What numbers are multiplied by where they are shown."""
        return 1e-6 if self.unit == "bytes" else 1.0


# Functions give those of several columns that a config has.
Columns = Callable[[Config], Iterable[Column]]


@dataclass(frozen=True)
class Table:
    """A table: its name, what it has, and its columns."""

    name: str
    caption: str
    parts: Sequence[Column | Columns]

    def columns(self, config: Config) -> tuple[Column, ...]:
        """The columns for a config."""
        return tuple(c for part in self.parts for c in ([part] if isinstance(part, Column) else part(config)))

    def of(self, items: Iterable[Any], config: Config) -> Iterator[dict[str, Any]]:
        """What each of these has in all columns that say how to take it."""
        functions = [(column.name, column.of) for column in self.columns(config) if column.of]
        for one in items:
            yield {name: of(one) for name, of in functions}

    def csv(self, rows: Iterable[Row], config: Config) -> bytes:
        """The content of its file; a cell is empty where a row has no value. Runs also have whatever columns their rows have.

        Raises:
            ValueError: a row has a value of no column.
        """
        # NaN is no value.
        cells = [{name: value for name, value in row.items() if value == value} for row in rows]
        names = [column.name for column in self.columns(config)]
        if self is RUNS:
            names += sorted({name for row in cells for name in row} - {*names})
        return csv_of(cells, names)

    def read(self, content: bytes, config: Config) -> pd.DataFrame:
        """Its rows from the content of its file: numbers, truth values and text, missing where a cell is empty."""
        text = [column.name for column in self.columns(config) if column.text]
        return pd.read_csv(
            io.BytesIO(content),
            dtype=dict.fromkeys(text, "str"),
            keep_default_na=False,
            na_values=[""],
            low_memory=False,
        )


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _sizes(config: Config) -> Iterator[Column]:
    """The sizes of the config's families; a run has none of an axis that its family lacks."""
    for name, axis in size_axes(config).items():
        of = partial(lambda name, run: run.settings.sizes.get(name), name)
        yield Column(name, f"Size of the model: {axis.title}", of, axis.title)


def _metrics(config: Config) -> Iterator[Column]:
    """The metrics of the config's families on both splits; the page shows the headline ones of the test."""
    heads = {config.family(workload).headline.name for workload in config.studied}
    for split in ("test", "validation"):
        for name in metrics(config):
            of = partial(Trained.metric, split=split, name=name)
            visible = split == "test" and name in heads
            yield Column(f"{split}_{name}", f"The metric `{name}` on {split} data", of, page=visible)


def _axis(name: str, meaning: str) -> Column:
    return Column(name, meaning, lambda run: getattr(run.settings.run, name), text=name not in INTEGERS)


def _ends(name: str, of: str, unit: str = "") -> tuple[Column, Column]:
    """The columns of an interval."""
    after = "_s" if unit == "s" else ""
    low = Column(f"{name}low{after}", f"Lower end of {of}", unit=unit)
    return low, Column(f"{name}high{after}", "Upper end", unit=unit)


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
STUDIES = Column("studies", "The studies that ask for the run, `search` for a trial", lambda run: " ".join(run.studies), page=True, text=True)
STATUS = Column("status", "`completed`; `diverged`, `out_of_memory` and `timed_out`, which are results; `missing`, `stale` and `refused`, which are none", lambda run: run.record.status, "state", page=True, text=True)
TIMED = Column("timed", "Whether the protocol asks for a machine to itself", lambda run: run.settings.protocol.timed)
QUIET = Column("quiet", "Whether the run was timed alone, on each of its hosts", lambda run: run.record.quiet.quiet)
FEATURES = Column("features", "`cached` or `inline`", lambda run: run.settings.protocol.features, text=True)
HARDWARE = Column("hardware", "The class of host, which is the cluster's node type or else the host itself, with its processor, cores, memory (to 5 %) and models of GPUs; times are compared only where it is equal", lambda run: host_class(run.record.machine), text=True)
CODE = Column("code", "Version and commit of the code that trained; `+dirty` where it had other changes", lambda run: code(run.record), text=True)
STUDY = Column("study", "The study's name in the config", text=True)
KIND = Column("kind", "The study's kind", text=True)

# What names a run, and what names a point.
RUN: tuple[Column | Columns, ...] = (*(_AXES[name] for name in AXES), FAMILY, _sizes, _AXES["layout"])
AT: tuple[Column | Columns, ...] = (*(_AXES[name] for name in POINT), FAMILY, _sizes)

RUNS = Table("runs", "One row per run of the studies and of their searches: its state, axes, quality, times and memory, and whether the machine was quiet. Columns `span_NAME_s` are the exclusive medians of the parts of a sampled step.", (
    *RUN, STUDIES, STATUS,
    Column("why", "Why the run was not completed, or has no record that can be used", lambda run: run.record.reason, page=True, text=True),
    Column("cohort", "How many runs one process trained together, this one included: 1 where it was alone", lambda run: 1 + len(run.record.cohort)),
    TIMED,
    Column("precision", "`fp32`, `fp64` or `amp`", lambda run: run.settings.protocol.precision, text=True),
    FEATURES,
    Column("mistake", "The misconfiguration that the protocol makes on purpose", lambda run: run.settings.protocol.mistake, text=True),
    _metrics,
    Column("test_chance", "What guessing gives on the test data", lambda run: run.chance),
    Column("test_samples", "Number of test samples", lambda run: run.test_samples),
    Column("epochs", "Number of epochs that were trained", lambda run: run.record.quality and run.record.quality.epochs, page=True),
    Column("split", "The unit that is never in two of training, validation and test", lambda run: run.record.split.by, text=True),
    Column("fold", "The fold that is the test set", lambda run: run.record.split.fold),
    Column("folds", "Number of folds", lambda run: run.record.split.folds),
    Column("shared", "Samples of validation and test that equal one of a part before theirs (training, validation, test), or have steps or a group in common with one", lambda run: run.record.split.shared),
    Column("step_s", "Median of the steady steps", lambda run: run.record.timing.step.median_s, "step", "s", page=True),
    Column("sampled_step_s", "Median of whole sampled steps", lambda run: run.record.timing.sampled_step.median_s, unit="s"),
    Column("least_step_s", "The least that this median can be on a quiet machine: the median itself if its steps were not disturbed; empty if that is unknown", attrgetter("least_step_s"), unit="s"),
    Column("first_step_s", "The first step, with compiling", lambda run: run.record.timing.first_step_s, unit="s"),
    Column("epoch_s", "Median wall time of whole epochs of steady steps, without validation; if there was none, steps in an epoch times the mean steady step", lambda run: run.record.timing.epoch_s, unit="s"),
    Column("samples_per_s", "Throughput at the median step", lambda run: run.record.timing.samples_per_s, "samples/s", page=True),
    Column("sample_work", "Arithmetic of a sample relative to other sizes, in families where a larger batch needs a larger model", lambda run: run.settings.family.work and run.settings.family.work(run.settings.sizes)),
    Column("train_s", "Wall time of the training loop, of a cohort until the run had ended", lambda run: run.record.timing.train_s, unit="s"),
    Column("fit_s", "The one phase of a model that is fitted, with all that it tried; such a model has no steps", lambda run: run.record.timing.fit_s, unit="s"),
    Column("peak_rss_bytes", "Largest resident memory, summed over ranks", lambda run: sum(rank.peak_rss_bytes or 0 for rank in run.record.machine.ranks) or None, "memory", "bytes", page=True),
    Column("peak_device_bytes", "Largest memory of a GPU, of the rank with most", lambda run: max(rank.peak_device_bytes or 0 for rank in run.record.machine.ranks) or None, unit="bytes"),
    QUIET,
    Column("busy_why", "Why it was not timed alone", lambda run: run.record.quiet.why, "busy", page=True, text=True),
    Column("shared_cores", "Whether threads of the run shared a physical core", lambda run: run.shared_cores),
    Column("gpus", "Models of the GPUs", lambda run: "; ".join(sorted(gpu.name for gpu in run.record.machine.gpus)), text=True),
    HARDWARE, CODE,
    Column("packages", "Versions of the packages that matter", lambda run: " ".join(f"{name}={version}" for name, version in sorted(run.record.packages.items())), text=True),
    Column("mpi_library", "The MPI library", lambda run: run.record.mpi_library, text=True),
    Column("started", "Start of the run, UTC", lambda run: run.record.started.isoformat(), text=True),
    Column("stopped", "Its end, UTC", lambda run: run.record.stopped.isoformat(), text=True),
    Column("parameters", "Number of trainable parameters", lambda run: run.record.parameters),
    Column("gradient_bytes", "What an all-reduce of the gradients sums on each rank", lambda run: run.record.gradient_bytes, unit="bytes"),
    Column("data_hash", "SHA-256 of the data", lambda run: run.record.data_hash, text=True),
    Column("features_hash", "SHA-256 of the prepared data", lambda run: run.record.features_hash, text=True),
    Column("node_hours", "Nodes times hours", lambda run: run.record.node_hours),
    Column("gpu_hours", "GPUs times hours", lambda run: run.record.gpu_hours),
    Column("replayed", "Steps that a GPU took as CUDA graphs", lambda run: run.record.replayed),
    Column("imported", "The modules of the package that the run imported, with hashes of their code; times are compared only where they agree", lambda run: run.record.code.imported, text=True),
))

POINT_WORDS = Column("point", "The point in words: whatever varies in the study", page=True, text=True)
# What every study says of a point, in its table and in answers.csv.
COMPARED = (
    Column("reference", "What the point is compared with; empty of a reference", heading="compared with", page=True, text=True),
    Column("effect", "The ratio, difference or value, in its unit", page=True), *_ends("", "its 95 % interval; none below three seeds"),
    Column("unit", "`times as fast` and `times as long` of ratios of times, `points` of differences of shares, `times` of ratios of metrics, else what it is", text=True),
    Column("verdict", "What the interval says, all comparisons of the study together", page=True, text=True),
    Column("why", "Why there is no verdict, or what limits the comparison", page=True, text=True),
)

ANSWERS = Table("answers", "The answer of each study: its leading row in a sentence, and how many comparisons have which verdict.", (
    STUDY, KIND,
    Column("question", "The study's question, from the config", text=True),
    Column("answer", "The answer, computed from the study's rows", text=True),
    POINT_WORDS, *COMPARED,
    Column("n", "Number of seeds, or of data sets"),
    Column("notes", "What a reader should know besides, a line each", text=True),
))

SPEED = Table("speed", "One row per point of every study of speed, and per pair of runs of studies of parity. Effects pair runs of the same seed on the same kind of host. Times are of the typical run. Failed runs, and busy ones beyond known bounds, are counted, but no time includes them. If all seeds were such, or none finished within its protocol's time, what they measured is shown and flagged.", (
    STUDY, KIND, POINT_WORDS, *AT, FEATURES,
    Column("workers", "Ranks times threads; on GPUs the ranks"),
    Column("step_s", "Steady step of the typical run", heading="step", unit="s", page=True), *_ends("step_", "its 95 % interval over seeds; none below three", unit="s"),
    *COMPARED,
    Column("pairs", "Number of pairs of the same seed", heading="n", unit="pairs", page=True),
    Column("outliers", "Number of outliers among the pairs, which are excluded below 15 pairs"),
    Column("over_serial", "Speedup over the best that one process does on at most as many cores, with any simulator", heading="over best serial", page=True), *_ends("over_serial_", "its 95 % interval"),
    Column("serial", "What that process is", text=True),
    Column("efficiency", "Speedup, or gain in throughput, as a share of the number of workers", unit="share", page=True),
    Column("karp_flatt", "Serial fraction by Karp and Flatt"),
    Column("work_s", "Work per worker: the step of one worker by this speedup, over the number of workers", heading="work per worker", unit="s", page=True),
    Column("first_s", "Median of the first step, with compiling", heading="first step", unit="s", page=True),
    Column("epoch_s", "Median over seeds of the time of an epoch", heading="epoch", unit="s", page=True),
    Column("samples_per_s", "Throughput at this step"),
    Column("mistake", "What is misconfigured in studies of mistakes", text=True),
    Column("dt", "Step of the simulator, in units of simulated time", page=True),
    Column("error", "Largest error of the simulator", page=True),
    Column("method", "The simulator without its step", text=True),
    Column("losses", "Largest relative difference of the first losses from those of the reference, in studies of changes", heading="losses differ by", page=True),
    Column("n", "Number of seeds in the step"),
    Column("busy", "Number of seeds on a busy machine that no time includes, or of all if there is no other", unit="seeds", page=True),
    Column("timed_out", "Number of seeds that timed out", unit="seeds", page=True),
    Column("failed", "Number of seeds that diverged or ran out of memory", unit="seeds", page=True),
    Column("absent", "Number of seeds without a record", unit="seeds", page=True),
    Column("flag", "Why the point or its reference is not ideal, such as `busy`, `bounded` (busy within known bounds), `timed_out`, `untimed` or `mixed` (runs that are not comparable)", text=True),
    HARDWARE, CODE,
))

FITS = Table("fits", "What is fitted over several points, by seed: laws of scaling and exponents of growth with a size. Intervals of 95 % are over seeds.", (
    STUDY, KIND, POINT_WORDS, *AT,
    Column("series", "The points that it is fitted to", text=True),
    Column("law", "Amdahl's and the universal scalability law (USL) of strong scaling, Gustafson's of weak, `power` of sweeps of a size", text=True),
    Column("parameter", "Name of the parameter", text=True),
    *COMPARED,
    Column("n", "Number of seeds", unit="seeds", page=True),
    Column("points", "Number of points in the fit"),
    HARDWARE, CODE,
))

QUALITY = Table("quality", "The headline metric on test data with the best weights, with its 95 % interval over seeds and test samples. Each model has the configuration that does best on validation data, and is compared with the best of its controls. In studies of kind comparison there is a row for all data sets together.", (
    STUDY, KIND, Column("row", "`data sets` of the row that is of several data sets", text=True), POINT_WORDS, *AT,
    Column("metric", "The headline metric of the family", text=True),
    Column("value", "Its estimate over splits, seeds and test samples, on test data with the best weights", page=True), *_ends("value_", "its 95 % interval"),
    *COMPARED,
    Column("pairs", "Number of pairs of seeds", heading="n", unit="pairs", page=True),
    Column("errors", "The error of each of several targets", heading="error of each", page=True, text=True),
    Column("n", "Number of seeds that were completed, of all splits"),
    Column("failed", "Number of seeds that were not", unit="seeds", page=True),
    Column("parameters", "Number of trainable parameters", page=True),
    Column("train_s", "Median time of training, of a cohort until the run had ended", unit="s"),
    Column("chance", "What guessing gives", heading="guessing"),
    Column("shared", "The most samples of validation and test, over its runs, that have something in common with a part before theirs"),
    Column("chosen", "Whether it is the model's configuration that does best on validation data, and so is compared"),
    Column("control", "The model of the reference: the best of its controls on validation data, without one the best baseline of the study, or `guessing`", text=True),
    HARDWARE, CODE,
))

# fmt: on

# Each NAME is tables/NAME.csv in the results folder. Every config has all of them; some may be empty.
TABLES = {table.name: table for table in (RUNS, ANSWERS, SPEED, QUALITY, FITS)}
