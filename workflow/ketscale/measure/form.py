"""The form of a record: what a run's metrics.json has, and the types and ranges of its values."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ketscale.config import Protocol
from ketscale.engines.evolved import Evolved
from ketscale.measure.quiet import QUIET_SHARE, STALLED_SHARE, disturbance

# Records of both are read; those of 8 lack what has a default.
SCHEMA_VERSION, SCHEMAS = 9, (8, 9)
# The ends of a run. The last three are results too: they are shown, and left out of fits.
Status = Literal["completed", "diverged", "out_of_memory", "timed_out"]
EARLY_ENDS: tuple[Status, ...] = ("diverged", "out_of_memory", "timed_out")
# A record keeps the losses of this many first steps.
LOSSES_KEPT = 20

# No process runs for a century.
Seconds = Annotated[float, Meta(ge=0, le=3.2e9)]
# Files and messages can count this far.
Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
NonNegative = Annotated[float, Meta(ge=0)]
Time = Annotated[datetime, Meta(tz=True)]
# A metric, a table such as a confusion matrix, or None if it is not defined.
MetricValue = int | float | list[Any] | None


class _Part(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A part of a record."""


class Quartiles(_Part, frozen=True):
    """Median, quartiles and mean of measured times; None if nothing was measured.

    median_s, q25_s, q75_s: the median, the lower and the upper quartile. mean_s: the mean. count: how many times were
    measured.
    """

    median_s: Seconds | None
    q25_s: Seconds | None
    q75_s: Seconds | None
    mean_s: Seconds | None
    count: Natural

    def __post_init__(self) -> None:
        if (self.count == 0) != (self.median_s is None):
            raise ValueError(f"the median of {self.count} times is {self.median_s}")


class Timing(_Part, frozen=True):
    """What the clock measured.

    startup_s: from the start of the process until data are read. data_s: opening and verifying the data.
    first_step_s: the first step, with compiling. step: steady steps, that is without warm-up, sampled steps and
    those that prepare a CUDA graph. spans: exclusive time of each part of a sampled step. sampled_step: whole
    sampled steps. validation_s: median of a validation pass. epoch: wall time of whole epochs of steady steps,
    validation left out. steps: their total number. steps_per_epoch: the steps of an epoch. epoch_s: the median of these
    epochs; if there was none, an estimate: steps_per_epoch times the mean steady step. samples_per_s: the
    throughput at the median steady step. steps_s: all steps together, with the first, warm-up and sampled ones.
    aside_s: what the loop did between steps: agreeing, validating, reporting and saving. train_s: wall time of the
    training loop, or of the fit. fit_s: the one phase of a model that is fitted, with all that it tried; None for a
    model that is trained by steps, of which a fitted one has none. preempted: the steady steps of a run beside others
    in which a rank lost its processor, and which `step` leaves out; None if they were most and it has all, on GPUs, and in
    records of earlier versions.
    """

    startup_s: Seconds
    data_s: Seconds
    first_step_s: Seconds | None
    step: Quartiles
    spans: dict[str, Quartiles]
    sampled_step: Quartiles
    validation_s: Seconds | None
    epoch: Quartiles
    steps: Natural
    steps_per_epoch: Natural
    epoch_s: Seconds | None
    samples_per_s: NonNegative | None
    steps_s: Seconds
    aside_s: Seconds
    train_s: Seconds
    fit_s: Seconds | None
    preempted: Natural | None = None


def epoch_s(measured_s: float | None, mean_step_s: float | None, steps_per_epoch: int) -> float | None:
    """The time of an epoch: the measured one, else an estimate by the mean step; None without either."""
    estimate_s = None if mean_step_s is None else mean_step_s * steps_per_epoch
    return estimate_s if measured_s is None else measured_s


class Right(_Part, frozen=True):
    """Which cases of the test are right, in the order of its samples, so that two models can be compared case by case.

    bits: one for each case, 1 if it is right, the first in the highest bit; base64. samples: how many the test has.
    cases: how many each sample has, as a sentence has words; None if each is one case.
    """

    bits: str
    samples: Natural
    cases: list[Natural] | None


class Quality(_Part, frozen=True):
    """Metrics of the best weights; each split has the loss and the metrics of the family.

    epochs: how many were trained. best_epoch: the one with the best validation, whose weights are tested, or the last if
    there are no validation samples; None for a model that is fitted. chosen: the values that such a model chose by validation, by
    name. tried: the number of settings that it chose from; 1 for any other model. validation, test: the metrics of that split, by name, none if it has no samples; a fitted model has no loss. right: the cases that the headline metric on the test is the share of;
    None if it is no share. influence: how much each sample of the test moves the logarithm of that metric, in single
    precision, little-endian and in Base64; None if it is a share, or unknown.
    """

    epochs: Natural | None
    best_epoch: Natural | None
    chosen: dict[str, float]
    validation: dict[str, MetricValue]
    test: dict[str, MetricValue]
    right: Right | None
    influence: str | None = None
    tried: Annotated[int, Meta(ge=1)] = 1


class Code(_Part, frozen=True):
    """The code that trained.

    version: the package's version. hash: SHA-256 of the sources that affect numbers and timing. imported: 4 characters of
    the hash of the name and 4 of that of the code without comments and docstrings, of each module of the package that the run
    imported, in Base64 and sorted. commit: the checkout's commit; None outside of one. dirty: whether the checkout had
    other changes.
    """

    version: str
    hash: str
    imported: str
    commit: str | None
    dirty: bool | None


class Topology(_Part, frozen=True):
    """The host's processors.

    sockets, physical_cores, threads_per_core: their number. core_of: the physical core of each logical CPU that
    rank 0 may use; a core has the number of its lowest CPU.
    """

    sockets: Annotated[int, Meta(ge=1)]
    physical_cores: Annotated[int, Meta(ge=1)]
    threads_per_core: Annotated[int, Meta(ge=1)]
    core_of: dict[str, int | None]


class Quiet(_Part, frozen=True):
    """Whether the run was timed alone on each of its hosts, and had enough cores. Shares are those of the worst host.

    quiet: whether it was: the first three shares are at most 5 %, the fourth is at most 25 %, and nothing is
    oversubscribed. why: the reasons if it was not, in words. others_share: the share of the time of the run's
    cores that other processes used. steal_share: the share that the hypervisor gave to other guests.
    throttled_share: the share of the run's time for which a CPU quota stopped it, of all its CPUs together; None if no
    control group is seen, so that it is unknown. stalled_share: the share of the training that was spent neither in
    steps nor beside them on purpose, plus that by which steps without computing exceeded the median one; None if that is
    unknown. cpus: the logical CPUs that were watched on rank 0's
    host, which are all those of the run's cores there; None for the whole host. oversubscribed: whether the run's
    threads are more than the CPUs that it may use, so that they disturbed each other. passes: how often the steps of a timed run
    were taken: again while others used more than 5 %, at most three times; the pass that others disturbed least counts, and
    the history is of the last. watched_s: for how long its CPUs were watched, from the first steady step of a timed run to its
    last; None in records of earlier versions.
    """

    quiet: bool
    others_share: NonNegative
    steal_share: NonNegative
    cpus: list[int] | None
    oversubscribed: bool
    throttled_share: NonNegative | None
    stalled_share: NonNegative | None
    why: str
    passes: Annotated[int, Meta(ge=1)] = 1
    watched_s: Seconds | None = None

    @property
    def by_others_alone(self) -> bool:
        """Whether only other processes of the host disturbed the run, by the time of its cores that they used."""
        explained = (self.stalled_share or 0.0) <= STALLED_SHARE + self.others_share
        known = self.cpus is not None and not self.oversubscribed and explained
        return known and max(self.steal_share, self.throttled_share or 0.0) <= QUIET_SHARE

    @property
    def disturbance(self) -> float | None:
        """The share of its time that others can have cost the run, at most; None if that is unknown.

        It is unknown if the CPUs are, or if it was not others that disturbed it.
        """
        if self.cpus is None or self.oversubscribed or (self.stalled_share or 0.0) > STALLED_SHARE:
            return None
        return disturbance(self.others_share, self.steal_share, self.throttled_share, len(self.cpus))


class Rank(msgspec.Struct, kw_only=True, frozen=True):
    """What one rank used; more is kept, but nothing else is tabulated.

    peak_rss_bytes, peak_device_bytes: its largest resident memory on the host, and on the GPU. shared_cores: whether its
    threads shared physical cores; None if unknown.
    """

    peak_rss_bytes: Natural | None
    peak_device_bytes: Natural | None
    shared_cores: bool | None


class Gpu(msgspec.Struct, kw_only=True, frozen=True):
    """A GPU. name: its model. uuid: its identifier."""

    name: str
    uuid: str


class Host(msgspec.Struct, kw_only=True, frozen=True):
    """A host.

    host: its name. node_type: the cluster's name for such hosts, as its site file has it; None elsewhere. cpu: the
    processor's model. cores, memory_bytes: its logical cores and its memory. gpus: the GPUs that a process sees. topology: the processors' topology; None if unknown. cache_bytes: the last-level cache of a core, which
    others may share; None if unknown.
    """

    host: str
    node_type: str | None = None
    cpu: str
    cores: Natural
    memory_bytes: Natural
    gpus: list[Gpu]
    topology: Topology | None
    cache_bytes: Natural | None


class Machine(Host, kw_only=True, frozen=True):
    """The host of rank 0, and one entry per rank in rank order.

    ranks: the resources that each rank used.
    """

    ranks: Annotated[list[Rank], Meta(min_length=1)]


class Route(_Part, frozen=True):
    """How fused evaluated the circuits of batches above 2^qubits, and the modelled seconds that decided it.

    qubits, gates: their number in the circuit. batch: the circuit's batch. route: the chosen one. sweep_s, matrix_s: the modelled time of either.
    """

    qubits: Natural
    gates: Natural
    batch: Natural
    route: Literal["sweep", "matrix"]
    sweep_s: Seconds | None
    matrix_s: Seconds | None


class Trainability(_Part, frozen=True):
    """What a probe has found over the weights that it drew (`engines.circuits.trainability`).

    circuits: how many different ones the model evaluates; the largest is probed. qubits, gates: their number in the largest one.
    weights: its angles that are drawn. observables: the Pauli words whose expectation values the model takes. pairs: the
    number of pairs of a word and a weight that it depends on. square: the mean square over draws of the derivative of
    a pair's expectation value with respect to its weight, averaged over pairs. variance: its variance over draws, averaged over
    pairs. frame: the frame potentials of the final states, of t = 1
    and 2, over those of random states. entanglement: the mean of Meyer and Wallach's Q.
    """

    circuits: Annotated[int, Meta(ge=1)]
    qubits: Annotated[int, Meta(ge=1)]
    gates: Natural
    weights: Annotated[int, Meta(ge=1)]
    observables: Annotated[int, Meta(ge=1)]
    pairs: Natural
    square: NonNegative
    variance: NonNegative
    frame: tuple[NonNegative, NonNegative]
    entanglement: Annotated[float, Meta(ge=0, le=1 + 1e-6)]


class Split(_Part, frozen=True):
    """How the data were split.

    by: the unit that is never in two of training, validation and test. fold: the number of the fold
    that is the test set; None without folds. folds: the number of folds. held_out: what the fold holds out. shared: how many samples of validation and test equal one
    of a part before theirs (train, validation, test), or have steps or a group in common with one; None without a split.
    """

    by: str | None
    fold: Natural | None
    folds: Annotated[int, Meta(ge=1)] | None
    held_out: int | None
    shared: Natural | None


class TrainedBy(Protocol, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The protocol of a record of any version: defaults for settings that it lacks, without those that are unknown."""


class SimulatedBy(msgspec.Struct, frozen=True):
    """What a record's settings say of any simulator.

    tolerance: the error that it declares; None if it is exact. shots: how many its results are means of; None if it draws none.
    """

    tolerance: float | None = None
    shots: int | None = None


class Used(msgspec.Struct, frozen=True):
    """The settings of a record that are read whatever its family. simulator: None of a classical model."""

    protocol: TrainedBy
    simulator: SimulatedBy | None


class Record(_Part, frozen=True):
    """A run's metrics.json: everything that was measured, and everything needed to trust it.

    schema: the version of this form. family: the workload's family. run: the axes. sizes: the model's sizes by name. status:
    how the run ended. reason: why the run did not complete, with the step. resumed: how often it resumed from a
    checkpoint. lost_s: the cost of interruptions in seconds, for repeated work and restarts. call: the call of
    Snakemake that trained the run; None if started by hand. parameters: the number of trainable ones; a complex number counts
    once; None if memory ran out before there was a model. gradient_bytes: what an all-reduce of the gradients sums on
    each rank; None if memory ran out before there was a model, or the model is fitted. config: the resolved settings. config_hash, data_hash,
    features_hash, weights_hash: SHA-256 of the settings, the data, the prepared data and the trained weights; None if
    there are none.
    split: how the data were split. samples: how many each part of the split has; {} if memory ran out before they were known. code: the code that trained. packages: their versions by name. mpi_library: the one in use; None without
    MPI. machine: the machine that it ran on. slurm_job_id: the id of its job; None outside of SLURM. started, stopped: UTC, ISO 8601. quiet:
    whether it was timed alone. quality: None for a protocol with steps, and of a probe. trainability: what a probe has found; None
    of any other run. losses: the losses of the first 20 steps; a fit has none. routes: the routes that
    fused chose, if it had a choice. evolution: what evolved a quantum system; None of circuits and classical models, and in records
    of earlier versions. replayed: the number of steps that a GPU took as CUDA graphs. timing: what the clock measured. node_hours, gpu_hours: nodes and GPUs times hours.
    files: SHA-256 of each file of the run beside the record: its history, the code of a model in a user's
    file, and the trained model where it is kept.
    cohort: the runs that were trained in the same process, a step of all at a time, as PROTOCOL/seedN, before a
    resumption too; such a run has times of those steps alone that it took alone at the end. digest: SHA-256 of all the rest as canonical JSON.
    """

    schema: Literal[8, 9]
    family: str
    run: dict[str, int | str]
    sizes: dict[str, Natural]
    status: Status
    reason: str | None
    resumed: Natural
    lost_s: Seconds
    call: str | None
    parameters: Natural | None
    config: dict[str, Any]
    config_hash: str
    data_hash: str | None
    features_hash: str | None
    split: Split
    samples: dict[str, Natural]
    code: Code
    packages: dict[str, str]
    mpi_library: str | None
    machine: Machine
    slurm_job_id: str | None
    started: Time
    stopped: Time
    quiet: Quiet
    quality: Quality | None
    trainability: Trainability | None
    losses: Annotated[list[float], Meta(max_length=LOSSES_KEPT)]
    weights_hash: str | None
    files: dict[str, str]
    routes: list[Route]
    timing: Timing
    node_hours: NonNegative
    gpu_hours: NonNegative
    digest: str
    gradient_bytes: Natural | None
    cohort: list[str]
    evolution: Evolved | None = None
    replayed: Natural = 0

    @property
    def undisturbed_steps(self) -> bool:
        """Whether the median step is of steps in which no rank lost its processor, and nothing else disturbed the run.

        Work on the other thread of a core slows a rank that keeps its processor.
        """
        topology = self.machine.topology
        alone = topology is not None and topology.threads_per_core == 1
        return alone and self.timing.preempted is not None and self.quiet.by_others_alone

    @property
    def settings(self) -> Used:
        """The settings in `config`, with their types."""
        return msgspec.convert(self.config, Used)
