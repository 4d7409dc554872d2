"""The form of a record: what a run's metrics.json has, and the types and ranges of its values."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ketscale.config import Protocol, Split
from ketscale.engines.evolved import Evolved
from ketscale.measure.quiet import QUIET_SHARE, disturbance

# Records of both are read; those of 8 lack what has a default.
SCHEMA_VERSION, SCHEMAS = 9, (8, 9)
# The ends of a run. The last three are results too: they are shown, and excluded from fits.
Status = Literal["completed", "diverged", "out_of_memory", "timed_out"]
EARLY_ENDS: tuple[Status, ...] = ("diverged", "out_of_memory", "timed_out")
# A record keeps the losses of this many first steps.
FIRST_LOSSES = 20
# Versions that measured it did not count a run as alone that stood still for more of its training than this.
STALLED_SHARE = 0.25

# No process runs for a century.
Seconds = Annotated[float, Meta(ge=0, le=3.2e9)]
# Files and messages can count this far.
Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
NonNegative = Annotated[float, Meta(ge=0)]
Time = Annotated[datetime, Meta(tz=True)]
# A metric, a table such as a confusion matrix, or None if it is not defined.
MetricValue = int | float | list[Any] | None


# A field is next to its meaning.
# fmt: off
class _Part(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A part of a record."""


class Quartiles(_Part, frozen=True):
    """Median, quartiles and mean of measured times; null if nothing was measured."""

    median_s: Annotated[Seconds | None, Meta(description="The median")]
    q25_s: Annotated[Seconds | None, Meta(description="The lower quartile")]
    q75_s: Annotated[Seconds | None, Meta(description="The upper quartile")]
    mean_s: Annotated[Seconds | None, Meta(description="The mean")]
    count: Annotated[Natural, Meta(description="How many times were measured")]

    def __post_init__(self) -> None:
        if (self.count == 0) != (self.median_s is None):
            raise ValueError(f"the median of {self.count} times is {self.median_s}")


class Timing(_Part, frozen=True):
    """What the clock measured."""

    startup_s: Annotated[Seconds, Meta(description="From the start of the process until data are read")]
    data_s: Annotated[Seconds, Meta(description="Opening and verifying the data")]
    first_step_s: Annotated[Seconds | None, Meta(description="The first step, with compiling")]
    step: Annotated[Quartiles, Meta(description="Steady steps: no warm-up, none sampled or preparing a CUDA graph")]
    spans: Annotated[dict[str, Quartiles], Meta(description="Exclusive time of each part of a sampled step")]
    sampled_step: Annotated[Quartiles, Meta(description="Whole sampled steps")]
    validation_s: Annotated[Seconds | None, Meta(description="Median of a validation pass")]
    epoch: Annotated[Quartiles, Meta(description="Wall time of whole epochs of steady steps, without validation")]
    steps: Annotated[Natural, Meta(description="The number of all steps")]
    steps_per_epoch: Annotated[Natural, Meta(description="The steps of an epoch")]
    epoch_s: Annotated[Seconds | None, Meta(description="The median of `epoch`, else an estimate by the mean steady step")]
    samples_per_s: Annotated[NonNegative | None, Meta(description="The throughput at the median steady step")]
    steps_s: Annotated[Seconds, Meta(description="All steps together, with the first, warm-up and sampled ones")]
    aside_s: Annotated[Seconds, Meta(description="Between steps: agreeing, validating, reporting and saving")]
    train_s: Annotated[Seconds, Meta(description="Wall time of the training loop, or of the fit")]
    fit_s: Annotated[Seconds | None, Meta(description="The one phase of a model that is fitted, which has no steps")]
    preempted: Annotated[Natural | None, Meta(description="The steady steps in which others ran on a rank's core, and "
        "which `step` excludes; null if they were most and it has all, on GPUs, and in earlier records")] = None


def epoch_s(measured_s: float | None, mean_step_s: float | None, steps_per_epoch: int) -> float | None:
    """The time of an epoch: the measured one, else an estimate by the mean step; None without either."""
    estimate_s = None if mean_step_s is None else mean_step_s * steps_per_epoch
    return estimate_s if measured_s is None else measured_s


class Right(_Part, frozen=True):
    """Which cases of the test are right, in the order of its samples, so that two models can be compared case by case."""

    bits: Annotated[str, Meta(description="One for each case, 1 if it is right, the first in the highest bit; base64")]
    samples: Annotated[Natural, Meta(description="How many the test has")]
    cases: Annotated[list[Natural] | None, Meta(description="How many each sample has; null if each is one case")]


class Quality(_Part, frozen=True):
    """Metrics of the best weights; each split has the loss and the metrics of the family."""

    epochs: Annotated[Natural | None, Meta(description="How many epochs were trained")]
    best_epoch: Annotated[Natural | None, Meta(description="The epoch whose weights are tested: that with the best "
        "validation, or the last without validation samples; null for a model that is fitted")]
    chosen: Annotated[dict[str, float], Meta(description="The values that a fitted model chose by validation, by name")]
    validation: Annotated[dict[str, MetricValue], Meta(description="Metrics of the validation samples by name")]
    test: Annotated[dict[str, MetricValue], Meta(description="Metrics of the test samples by name")]
    right: Annotated[Right | None, Meta(description="The cases whose share the headline metric is, if it is one")]
    influence: Annotated[str | None, Meta(description="How much each sample of the test moves the logarithm of that "
        "metric, in single precision, little-endian and in Base64; null if it is a share, or unknown")] = None
    tried: Annotated[int, Meta(ge=1, description="The number of settings that a fitted model chose from; else 1")] = 1


class Code(_Part, frozen=True):
    """The code that trained."""

    version: Annotated[str, Meta(description="The package's version")]
    hash: Annotated[str, Meta(description="SHA-256 of the sources that affect numbers and timing")]
    imported: Annotated[str, Meta(description="4 characters of the hash of the name and 4 of that of the source, of each "
        "module of the package that the run imported, in Base64 and sorted")]
    commit: Annotated[str | None, Meta(description="The checkout's commit; null outside of one")]
    dirty: Annotated[bool | None, Meta(description="Whether the checkout had other changes")]


class Topology(_Part, frozen=True):
    """The host's processors."""

    sockets: Annotated[int, Meta(ge=1, description="The number of sockets")]
    physical_cores: Annotated[int, Meta(ge=1, description="The number of cores")]
    threads_per_core: Annotated[int, Meta(ge=1, description="Hardware threads of a core")]
    core_of: Annotated[dict[str, int | None], Meta(description="The core of each CPU that rank 0 may use: its lowest CPU")]


class Quiet(_Part, frozen=True):
    """Whether the run was timed alone on each of its hosts, and had enough cores. Shares are those of the worst host."""

    quiet: Annotated[bool, Meta(description="Whether it was alone: the first three shares are at most 5 %, and nothing "
        "is oversubscribed")]
    others_share: Annotated[NonNegative, Meta(description="The share of its cores' time that other processes used")]
    steal_share: Annotated[NonNegative, Meta(description="The share of that time that the hypervisor gave to other guests")]
    cpus: Annotated[list[int] | None, Meta(description="The logical CPUs that were watched on rank 0's host, which are "
        "all those of the run's cores there; null for the whole host")]
    oversubscribed: Annotated[bool, Meta(description="Whether its threads are more than the CPUs that it may use")]
    throttled_share: Annotated[NonNegative | None, Meta(description="The share of the run's time for which a CPU quota "
        "stopped it, of all its CPUs together; null if no control group is seen")]
    why: Annotated[str, Meta(description="The reasons if it was not, in words")]
    stalled_share: Annotated[NonNegative | None, Meta(description="In records of earlier versions: the share of the "
        "training in which nothing happened, by the times of its steps")] = None
    passes: Annotated[int, Meta(ge=1, description="How often the steps of a timed run were taken: again while others "
        "used more than 5 %, at most three times; the pass that others disturbed least counts, and the history "
        "is of the last")] = 1
    watched_s: Annotated[Seconds | None, Meta(description="For how long its CPUs were watched, from the first steady "
        "step of a timed run to its last; null in records of earlier versions")] = None

    @property
    def by_others_alone(self) -> bool:
        """Whether only other processes of the host disturbed the run, by the time of its cores that they used."""
        explained = (self.stalled_share or 0.0) <= STALLED_SHARE + self.others_share
        measured = self.cpus is not None and not self.oversubscribed and explained
        return measured and max(self.steal_share, self.throttled_share or 0.0) <= QUIET_SHARE

    @property
    def disturbance(self) -> float | None:
        """The share of its time that others can have cost the run, at most; None if that is unknown.

        It is unknown if the CPUs are, or if it was not others that disturbed it.
        """
        if self.cpus is None or self.oversubscribed or (self.stalled_share or 0.0) > STALLED_SHARE:
            return None
        return disturbance(self.others_share, self.steal_share, self.throttled_share, len(self.cpus))


class Rank(msgspec.Struct, kw_only=True, frozen=True):
    """What one rank used; more is kept, but nothing else is tabulated."""

    peak_rss_bytes: Annotated[Natural | None, Meta(description="Its largest resident memory on the host")]
    peak_device_bytes: Annotated[Natural | None, Meta(description="Its largest memory on the GPU")]
    shared_cores: Annotated[bool | None, Meta(description="Whether its threads shared physical cores; null if unknown")]


class Gpu(msgspec.Struct, kw_only=True, frozen=True):
    """A GPU."""

    name: Annotated[str, Meta(description="Its model")]
    uuid: Annotated[str, Meta(description="Its identifier")]


class Host(msgspec.Struct, kw_only=True, frozen=True):
    """A host."""

    host: Annotated[str, Meta(description="Its name")]
    node_type: Annotated[str | None, Meta(description="The name that the cluster's site file has for such hosts")] = None
    cpu: Annotated[str, Meta(description="The processor's model")]
    cores: Annotated[Natural, Meta(description="Its logical cores")]
    memory_bytes: Annotated[Natural, Meta(description="Its memory")]
    gpus: Annotated[list[Gpu], Meta(description="The GPUs that a process sees")]
    topology: Annotated[Topology | None, Meta(description="The processors' topology; null if unknown")]
    cache_bytes: Annotated[Natural | None, Meta(description="In records of earlier versions: the last-level cache of a "
        "core")] = None


class Machine(Host, kw_only=True, frozen=True):
    """The host of rank 0, and one entry per rank in rank order."""

    ranks: Annotated[list[Rank], Meta(min_length=1, description="The resources that each rank used")]




class TrainedBy(Protocol, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The protocol of a record of any version: defaults for settings that it lacks, without those that are unknown."""


class SimulatedBy(msgspec.Struct, frozen=True):
    """What a record's settings say of any simulator."""

    tolerance: Annotated[float | None, Meta(description="The error that it declares; null if it is exact")] = None
    shots: Annotated[int | None, Meta(description="How many its results are means of; null if it draws none")] = None
    noise: Annotated[dict[str, Any] | None, Meta(description="The strengths of its channels; null without any")] = None
    noise_in_training: Annotated[bool, Meta(description="Whether it was trained with this noise")] = True
    trajectories: Annotated[int | None, Meta(description="How many its noisy results are means of; null if they are "
        "exact")] = None


class Used(msgspec.Struct, frozen=True):
    """The settings of a record that are read whatever its family. simulator: None of a classical model."""

    protocol: TrainedBy
    simulator: SimulatedBy | None


class Record(_Part, frozen=True):
    """A run's metrics.json: everything that was measured, and everything needed to trust it."""

    schema: Annotated[Literal[8, 9], Meta(description="The version of this form")]
    family: Annotated[str, Meta(description="The workload's family")]
    run: Annotated[dict[str, int | str], Meta(description="The axes")]
    sizes: Annotated[dict[str, Natural], Meta(description="The model's sizes by name")]
    status: Annotated[Status, Meta(description="How the run ended")]
    reason: Annotated[str | None, Meta(description="Why the run did not complete, with the step")]
    resumed: Annotated[Natural, Meta(description="How often it resumed from a checkpoint")]
    call: Annotated[str | None, Meta(description="The call of Snakemake that trained the run; null if started by hand")]
    parameters: Annotated[Natural | None, Meta(description="The number of trainable parameters, where a complex one "
        "counts once; null if memory ran out before there was a model")]
    config: Annotated[dict[str, Any], Meta(description="The resolved settings")]
    config_hash: Annotated[str, Meta(description="SHA-256 of the settings")]
    data_hash: Annotated[str | None, Meta(description="SHA-256 of the data; null if there are none")]
    features_hash: Annotated[str | None, Meta(description="SHA-256 of the prepared data; null if there are none")]
    split: Annotated[Split, Meta(description="How the data were split")]
    samples: Annotated[dict[str, Natural], Meta(description="How many each part of the split has, as far as known")]
    code: Annotated[Code, Meta(description="The code that trained")]
    packages: Annotated[dict[str, str], Meta(description="The versions of the packages by name")]
    mpi_library: Annotated[str | None, Meta(description="The MPI library in use; null without MPI")]
    machine: Annotated[Machine, Meta(description="The machine that it ran on")]
    slurm_job_id: Annotated[str | None, Meta(description="The id of the job; null outside of SLURM")]
    started: Annotated[Time, Meta(description="When it started, UTC, ISO 8601")]
    stopped: Annotated[Time, Meta(description="When it stopped, UTC, ISO 8601")]
    quiet: Annotated[Quiet, Meta(description="Whether it was timed alone, and what disturbed it")]
    quality: Annotated[Quality | None, Meta(description="What validation and test gave; null with steps")]
    losses: Annotated[list[float], Meta(max_length=FIRST_LOSSES, description="The losses of the first 20 steps")]
    weights_hash: Annotated[str | None, Meta(description="SHA-256 of what was learned; null if nothing was")]
    files: Annotated[dict[str, str], Meta(description="SHA-256 of each file in the record's folder: its history, "
        "the code of a model in a user's file, and the trained model where it is kept")]
    timing: Annotated[Timing, Meta(description="What the clock measured")]
    node_hours: Annotated[NonNegative, Meta(description="Nodes times hours")]
    gpu_hours: Annotated[NonNegative, Meta(description="GPUs times hours")]
    digest: Annotated[str, Meta(description="SHA-256 of all the rest as canonical JSON")]
    gradient_bytes: Annotated[Natural | None, Meta(description="What an all-reduce of the gradients sums on each rank; "
        "null if memory ran out before there was a model, or the model is fitted")]
    cohort: Annotated[list[str], Meta(description="The runs that were trained in the same process, as PROTOCOL/seedN; "
        "such a run has times of those steps alone that it took alone at the end")]
    evolution: Annotated[Evolved | None, Meta(description="What evolved a quantum system, if there is one")] = None
    replayed: Annotated[Natural, Meta(description="The number of steps that a GPU ran as CUDA graphs")] = 0
    lost_s: Annotated[Seconds, Meta(description="In records of earlier versions: the cost of interruptions")] = 0.0
    routes: Annotated[list[dict[str, Any]], Meta(description="In records of versions with a choice: the routes of "
        "fused")] = msgspec.field(default_factory=list)
    trainability: Annotated[dict[str, Any] | None, Meta(description="What random weights gave, in records of versions "
        "that drew some")] = None

    @property
    def undisturbed_steps(self) -> bool:
        """Whether the median step is of steps in which no rank lost its processor, and nothing else disturbed the run.

        Work on the other thread of a core slows a rank that keeps its processor.
        """
        topology = self.machine.topology
        single = topology is not None and topology.threads_per_core == 1
        return single and self.timing.preempted is not None and self.quiet.by_others_alone

    @property
    def settings(self) -> Used:
        """The settings in `config`, with their types."""
        return msgspec.convert(self.config, Used)
# fmt: on
