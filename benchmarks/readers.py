"""`python -m benchmarks.readers READER --out FOLDER`: what one of the five published systems would take here, by one command.

A reader has a study of `workflow/studies`, of which Snakemake trains the points that are named here, and numbers that are read
from their records. FOLDER/READER.csv has them, beside what was published; FOLDER/results-READER has the records.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, cast

import numpy as np
import yaml
from numpy.typing import NDArray

from benchmarks.machine import ROOT
from ketscale import analysis
from ketscale.analysis.comparison import RESOLUTION, paired
from ketscale.analysis.intervals import Estimate, typical
from ketscale.config import Config, load
from ketscale.errors import UserError
from ketscale.files import csv_of, write_atomic
from ketscale.grid import RECORD, Run
from ketscale.measure import record
from ketscale.measure.form import Record
from ketscale.measure.quiet import QUIET_SHARE
from ketscale.problems.images import mnist
from ketscale.problems.samples import Samples

# Seconds and shares by the unit of a number.
IMAGES = 60_000
FACTORS = {"ms": 1e3, "s": 1.0, "min": 1 / 60, "h": 1 / 3600, "%": 1e2, "x": 1.0, "": 1.0}


class Number(NamedTuple):
    """A number of a reader, published or measured here.

    number: its name. shown: as it is printed. low, high: its 95 % interval over n seeds; where it is published, the range that is
    given, without n. what: of which it is, in words. source: where it is from.
    """

    reader: str
    number: str
    shown: str
    value: float | None
    low: float | None
    high: float | None
    n: int | None
    unit: str
    what: str
    source: str


def _disturbed(run: Record) -> bool:
    """Whether a timed run was not alone. Ranks that are placed wrongly on purpose disturb each other, which is measured."""
    protocol, quiet = run.config["protocol"], run.quiet
    if protocol.get("mistake"):
        return max(quiet.others_share, quiet.steal_share, quiet.throttled_share or 0.0) > QUIET_SHARE
    return protocol["timed"] and not quiet.quiet


class Records:
    """The records of a results folder by point and seed, where a point is a path without its seed.

    busy: the folders of timed ones that shared the machine. machines: where, at which commit and when any was taken.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.busy: set[str] = set()
        self.machines: set[str] = set()

    def of(self, point: str) -> dict[int, Record]:
        """The records of a point by seed.

        Raises:
            UserError: there is none.
        """
        result = {}
        for path in sorted((self._folder / "runs" / point).glob(f"seed*/{RECORD}")):
            state = record.read(path)
            if state.record is None or state.state != "completed":
                raise UserError(f"{path}: {state.state}: {state.why}")
            if _disturbed(state.record):
                self.busy.add(str(path.parent))
            result[Run.parse(str(path)).seed] = each = state.record
            commit = (each.code.commit or "unknown")[:10]
            self.machines.add(
                f"{each.machine.cpu}, {each.machine.cores} cores, commit {commit}, {each.started:%Y-%m-%d}"
            )
        if not result:
            raise UserError(f"{self._folder}: has no run of {point}")
        return result

    def embedding(self, workload: str) -> float:
        """Seconds that computing a workload's features took, once for all runs."""
        (timing,) = (self._folder / "features" / workload).rglob("timing.json")
        seconds: float = json.loads(timing.read_text())["embed_seconds"]
        return seconds

    def steps(self, point: str) -> dict[int, float]:
        """Seconds of a steady step by seed."""
        return {seed: _is_known(each.timing.step.median_s) for seed, each in self.of(point).items()}


Measure = Callable[[Records], Iterator[tuple[str, Estimate | None, str, str]]]


@dataclass(frozen=True)
class Reader:
    """What one of the five asks, and how it is answered.

    study: the file. points: what is trained of it, as paths with a `*` for the seed, by the seeds. published: numbers with
    their unit, what they are of, and the section of the source. measured: gives a number's name, the number, its unit and
    what it is of.
    """

    study: str
    points: Mapping[str, Sequence[int]]
    source: str
    published: Sequence[tuple[str, float, float, str, str]]
    measured: Measure


def _is_known(value: float | None) -> float:
    if value is None:
        raise UserError("a run has too few steps to be timed")
    return value


def _ratio(of: Mapping[int, float], over: Mapping[int, float]) -> Estimate | None:
    return paired(of, over, RESOLUTION)


def _geometric(values: Mapping[int, float]) -> Estimate | None:
    """The typical one of positive values by seed."""
    return paired(values, dict.fromkeys(values, 1.0), RESOLUTION)


def _infidelity(values: Mapping[int, float]) -> Estimate | None:
    """The typical infidelity; none is larger than 1, whatever three seeds say of their spread."""
    result = _geometric(values)
    if result is None or result.high is None:
        return result
    return replace(result, high=min(result.high, 1.0))


def _minutes(records: Mapping[int, Record]) -> Estimate | None:
    return _geometric({seed: each.timing.train_s for seed, each in records.items()})


# --- EEG

EEG = "eeg-synthetic/hydra/q{}-l2-b32/fused/{}/{}"
# The published seeds, and how many of them are run.
CAMPAIGN = {6: 5, 8: 3, 10: 5}
SEEDS = {6: (2024, 2025, 2026), 8: (2024,), 10: (2024,)}
MISTAKES = ("timing", "one-device", "oversubscribed", "unsharded")


def _eeg(records: Records) -> Iterator[tuple[str, Estimate | None, str, str]]:
    seconds: list[float] = []
    for qubits, seeds in CAMPAIGN.items():
        result = records.of(EEG.format(qubits, "cpu-n1r1t2", "fifty-epochs"))
        epochs = {each.quality.epochs for each in result.values() if each.quality}
        what = f"{'/'.join(map(str, epochs))} epochs of hydra at {qubits} qubits, with validation, on two threads"
        yield f"training-{qubits}", _minutes(result), "min", what
        seconds += [seeds * fmean(each.timing.train_s for each in result.values())]
        epoch = _geometric({seed: _is_known(each.timing.epoch_s) for seed, each in result.items()})
        yield f"epoch-{qubits}", epoch, "s", f"an epoch of it at {qubits} qubits"
    what = f"the {sum(CAMPAIGN.values())} published runs of hydra, from these, one after the other"
    yield "campaign", Estimate(sum(seconds), None, None, 1), "min", what
    one, threads = (records.steps(EEG.format(6, layout, "timing")) for layout in ("cpu-n1r1t1", "cpu-n1r1t2"))
    yield "step", _geometric(one), "ms", "a step of 32 trials at 6 qubits, one thread"
    yield "threads", _ratio(one, threads), "x", "speedup of two threads over one, at a batch of 32"
    for mistake in MISTAKES:
        two = records.steps(EEG.format(6, "ddp-cpu-n1r2t1", mistake))
        what = "two ranks" if mistake == "timing" else f"two ranks, {mistake}"
        yield f"ranks-{mistake}", _ratio(one, two), "x", f"speedup of {what}, over one, at a batch of 32"


# --- MNIST

MNIST = "mnist/{}/{}-b64/{}/cpu-n1r1t1/{}"
SIMULATORS = ("fused", "default.qubit", "lightning.qubit", "default.qubit-loop-shift")


def _mnist(records: Records) -> Iterator[tuple[str, Estimate | None, str, str]]:
    circuit = records.of(MNIST.format("vqc", "q4-l3", "fused", "fifty-epochs"))
    epochs, samples = next((each.quality, each.samples) for each in circuit.values())
    assert epochs is not None
    what = (
        f"{epochs.epochs} epochs of {samples['train']:,} images, with validation of {samples['validation']:,}"
    )
    yield "training", _minutes(circuit), "min", f"{what}, features cached, one thread"
    seconds = Estimate(records.embedding("mnist"), None, None, 1)
    yield (
        "features",
        seconds,
        "s",
        "the features of all 70,000 images at 32 pixels, computed once, two threads",
    )
    for simulator in SIMULATORS:
        steps = records.steps(MNIST.format("vqc", "q4-l3", simulator, "timing"))
        yield f"step-{simulator}", _geometric(steps), "ms", f"a step of 64 under {simulator}, one thread"


def stand_in(found: Samples, count: int) -> dict[str, NDArray[Any]]:
    """So many images of other images, shifted by up to two pixels, for training and, a tenth, validation; these are the test.

    Copies of one image are in all three, so that accuracies say nothing.
    """
    rng = np.random.default_rng(0)
    rows = np.resize(np.arange(len(found.targets)), count)
    shifted = [np.roll(found.values[row], tuple(rng.integers(-2, 3, 2)), (0, 1)) for row in rows]
    parts = np.full(count, "train", "<U10")
    parts[rng.permutation(count)[: count // 10]] = "validation"
    return {
        "images": np.concatenate([np.stack(shifted), found.values]),
        "labels": np.concatenate([found.targets[rows], found.targets]),
        "split": np.concatenate([parts, np.full(len(found.targets), "test", "<U10")]),
    }


# --- the gate

GATE = "published/cosine_pulse/q{}-d2-b{}/{}/{}/timing"
DEVICE = "x/cosine-device/q6-d2-b64/matched/{}/device"
INTEGRATORS = {"published-5000": "5,000 midpoint steps, as published", "matched": "200 steps of interaction4"}
SHARED = ("pulses.forward", "pulses.backward")


def _repeated(records: Mapping[int, Record]) -> Estimate | None:
    """The share of a step that every device repeats: all but the evolution of the columns."""
    return typical(
        [
            1 - sum(_is_known(each.timing.spans[name].median_s) for name in SHARED)
            / _is_known(each.timing.sampled_step.median_s)
            for each in records.values()
        ]
    )  # fmt: skip


def _ceiling(share: Estimate | None, devices: int) -> Estimate | None:
    """Amdahl's bound of the speedup, from the share that is repeated."""
    if share is None:
        return None
    low, high, value = (
        None if end is None else 1 / (max(end, 0.0) + (1 - max(end, 0.0)) / devices)
        for end in (share.high, share.low, share.value)
    )
    assert value is not None
    return Estimate(value, low, high, share.n)


def _gate(records: Records) -> Iterator[tuple[str, Estimate | None, str, str]]:
    for name, what in INTEGRATORS.items():
        for qubits in (6, 8) if name == "matched" else (6,):
            one = GATE.format(qubits, 2**qubits, name, "cpu-n1r1t1")
            yield (
                f"step-{name}-{qubits}",
                _geometric(records.steps(one)),
                "ms",
                f"{qubits} qubits, {what}, one thread",
            )
            share = _repeated(records.of(one))
            yield f"repeated-{name}-{qubits}", share, "%", "share of it that is not the columns' evolution"
            yield (
                f"ceiling-{name}-{qubits}",
                _ceiling(share, 8),
                "x",
                "most that eight devices gain by this share",
            )
        serial, shared = (
            records.steps(GATE.format(6, 64, name, layout)) for layout in ("cpu-n1r1t1", "mpi-n1r2t1")
        )
        yield f"ranks-{name}", _ratio(serial, shared), "x", f"speedup of two MPI ranks, 6 qubits, {what}"
    share = _repeated(records.of(DEVICE.format("cpu-n1r1t1")))
    yield (
        "step-device",
        _geometric(records.steps(DEVICE.format("cpu-n1r1t1"))),
        "ms",
        "6 qubits, device trained too",
    )
    yield "repeated-device", share, "%", "share that is repeated where the device is trained too"
    yield "ceiling-device", _ceiling(share, 8), "x", "most that eight devices gain by this share"
    serial, shared = (records.steps(DEVICE.format(layout)) for layout in ("cpu-n1r1t1", "mpi-n1r2t1"))
    yield (
        "ranks-device",
        _ratio(serial, shared),
        "x",
        "speedup of two MPI ranks where the device is trained too",
    )


# --- the transformer

SENTENCES = "sentences/superposition_transformer/q4-l1-b{}/{}/{}/{}"
FORMULATIONS = {
    "literal": "circuit built in every evaluation, as published",
    "literal-bound": "circuit built once",
    "closed-form-shift": "closed form, shift rule",
    "closed-form": "closed form, backpropagation",
    "fused": "fused, adjoint",
}


def _transformer(records: Records) -> Iterator[tuple[str, Estimate | None, str, str]]:
    for name, what in FORMULATIONS.items():
        steps = records.steps(SENTENCES.format(1, name, "cpu-n1r1t1", "sentences"))
        yield f"sentence-{name}", _geometric(steps), "ms", f"a step of one sentence of three words: {what}"
    for name in ("closed-form-shift", "fused"):
        one, two = (
            records.steps(SENTENCES.format(8, name, layout, "sentences"))
            for layout in ("cpu-n1r1t1", "mpi-n1r2t1")
        )
        yield (
            f"epoch-{name}",
            _geometric(one),
            "ms",
            f"an epoch of eight sentences of three words: {FORMULATIONS[name]}",
        )
        yield f"ranks-{name}", _ratio(one, two), "x", f"speedup of two MPI ranks: {FORMULATIONS[name]}"


# --- control

CONTROL = "published/{}/q1-s20-b{}/{}/cpu-n1r1t1/{}"
LITERAL = CONTROL.format("policy", 2, "literal", "loop")
CHANGES = {
    "cache": (CONTROL.format("policy", 2, "literal-cached", "loop"), "a cache of each task's simulator"),
    "tasks": (CONTROL.format("policy", 1, "literal", "loop"), "1 task instead of 2 (half of the work)"),
    "inner": (
        CONTROL.format("policy-5", 2, "literal", "loop"),
        "5 inner steps instead of 10 (half of the work)",
    ),
    "policy": (
        CONTROL.format("policy-loop", 2, "literal", "loop"),
        "the policy for one task after the other, too",
    ),
    "dt": (CONTROL.format("policy", 2, "literal-0.02", "loop"), "dt 0.02 instead of 0.01"),
    "euler": (CONTROL.format("policy", 2, "literal-euler", "loop"), "Euler instead of RK4 (not accurate)"),
    "batch": (CONTROL.format("policy", 2, "rk4-0.01", "loop"), "the dynamics of all tasks at once, compiled"),
    "exact": (CONTROL.format("policy", 2, "exact", "loop"), "exact propagation"),
}
TASKS = ("narrow", "detuned")
POLICIES = {
    "robust_grape": ("robust_grape/q1-s20-b100/exact/cpu-n1r1t1/one-pulse", "one pulse for all tasks"),
    "fomaml": ("fomaml/q1-s20-b100/exact/cpu-n1r1t1/meta", "FOMAML"),
    "multi-task": ("multi-task/q1-s20-b100/exact/cpu-n1r1t1/meta", "a policy trained on all tasks"),
}
ADAPTED = (0, 1, 5)


def _control(records: Records) -> Iterator[tuple[str, Estimate | None, str, str]]:
    training = records.of(CONTROL.format("policy", 200, "exact", "published"))
    yield (
        "training",
        _minutes(training),
        "min",
        "1,000 iterations of 200 tasks, 10 inner steps, exact, one thread",
    )
    steps = records.steps(CONTROL.format("policy", 200, "exact", "published"))
    yield "iteration", _geometric(steps), "ms", "one of them"
    literal = records.steps(LITERAL)
    yield (
        "literal",
        _geometric(literal),
        "s",
        "an iteration of 2 tasks, one after the other, RK4 with dt 0.01",
    )
    for name, (point, what) in CHANGES.items():
        faster = _ratio(literal, records.steps(point))
        yield f"change-{name}", faster, "x", f"as fast, by one change: {what}"
    for tasks in TASKS:
        for name, (point, what) in POLICIES.items():
            result = records.of(f"{tasks}/{point}")
            for steps_taken in ADAPTED:
                values = {
                    seed: float(cast(float, each.quality.test[f"infidelity_{steps_taken}"]))
                    for seed, each in result.items()
                    if each.quality
                }
                of = f"infidelity of {what}, {tasks} tasks, after {steps_taken} steps of adaptation"
                yield f"{tasks}-{name}-{steps_taken}", _infidelity(values), "", of


THREE = (0, 1, 2)

READERS: dict[str, Reader] = {
    "eeg": Reader(
        "eeg-published",
        {
            **{EEG.format(q, "cpu-n1r1t2", "fifty-epochs"): seeds for q, seeds in SEEDS.items()},
            **{EEG.format(6, f"cpu-n1r1t{threads}", "timing"): THREE for threads in (1, 2)},
            **{EEG.format(6, "ddp-cpu-n1r2t1", mistake): THREE for mistake in MISTAKES},
        },
        "github.com/JHPark9090/Quantum-Hydra-Mamba",
        (
            ("theirs-total-6", 13.97, 13.97, "h", "a run at 6 qubits on one GPU, which stopped after 21.8 epochs on average"),
            ("theirs-total-10", 21.67, 21.67, "h", "a run at 10 qubits on one GPU"),
            ("theirs-epoch-6", 38.45, 38.45, "min", "an epoch at 6 qubits on one GPU: the total over the epochs that were trained"),
            ("theirs-epoch-8", 19.5, 20, "min", "an epoch at 8 qubits on four GPUs"),
        ),
        _eeg,
    ),
    "mnist": Reader(
        "mnist-published",
        {
            MNIST.format("vqc", "q4-l3", "fused", "fifty-epochs"): (42, 43, 44),
            **{MNIST.format("vqc", "q4-l3", name, "timing"): THREE for name in SIMULATORS},
        },
        "the guide to a project called quantum-ml-mnist",
        (
            ("theirs-step-cpu", 3, 4, "s", "a step on a CPU, given for batches of 64 and, elsewhere, of 32"),
            ("theirs-step-gpu", 7, 12, "s", "a step of 64 on a GPU with a CPU"),
            ("theirs-total", 35, 75, "h", "50 epochs on a CPU, at two batch sizes"),
        ),
        _mnist,
    ),
    "gate": Reader(
        "pulses",
        {
            **{
                GATE.format(6, 64, name, layout): THREE
                for name in INTEGRATORS
                for layout in ("cpu-n1r1t1", "mpi-n1r2t1")
            },
            GATE.format(8, 256, "matched", "cpu-n1r1t1"): THREE,
            **{DEVICE.format(layout): THREE for layout in ("cpu-n1r1t1", "mpi-n1r2t1")},
        },
        "a guide to multi-device SuperGrad (github.com/iqubit-org/supergrad)",
        (
            ("theirs-ranks", 1, 2, "x", "speedup on eight GPUs, no size given"),
            ("theirs-expected", 4, 5, "x", "the speedup that was expected"),
        ),
        _gate,
    ),
    "transformer": Reader(
        "transformer",
        {
            SENTENCES.format(1, "literal", "cpu-n1r1t1", "sentences"): (0,),
            SENTENCES.format(1, "literal-bound", "cpu-n1r1t1", "sentences"): (0,),
            **{
                SENTENCES.format(1, name, "cpu-n1r1t1", "sentences"): THREE
                for name in ("closed-form-shift", "closed-form", "fused")
            },
            **{
                SENTENCES.format(8, name, layout, "sentences"): THREE
                for name in ("closed-form-shift", "fused")
                for layout in ("cpu-n1r1t1", "mpi-n1r2t1")
            },
        },
        "github.com/Alessio-Pecilli/variational_quantum_transformere_sovrapposition",
        (
            ("theirs-epoch", 20, 20, "s", "an epoch of one sentence of two words, on one rank"),
            ("theirs-epoch-8", 3, 5, "s", "the same on eight ranks"),
        ),
        _transformer,
    ),
    "control": Reader(
        "control",
        {
            CONTROL.format("policy", 200, "exact", "published"): THREE,
            LITERAL: THREE,
            **{point: THREE for point, _ in CHANGES.values()},
            **{f"{tasks}/{point}": THREE for tasks in TASKS for point, _ in POLICIES.values()},
        },
        "github.com/nimalec/meta-quantum-control",
        (
            ("theirs-before", 300, 500, "s", "an iteration of 200 tasks, 10 inner steps"),
            ("theirs-expected", 5, 10, "s", "what an iteration of 16 tasks, 5 inner steps was expected to take"),
        ),
        _control,
    ),
}  # fmt: skip


def quick(given: dict[str, Any]) -> dict[str, Any]:
    """A config with few steps and small data, to see whether it runs."""
    for protocol in given["protocols"].values():
        if "epochs" in protocol:
            protocol["epochs"] = 1
        if "steps" in protocol:
            fewest = protocol.get("warmup", 2) + 1
            few = dict.fromkeys(protocol.get("steps_for", ()), fewest)
            protocol |= {"steps": fewest + 2, "steps_for": few, "sampled_steps": 1}
    for workload in given["workloads"].values():
        if "subjects" in workload:
            workload |= {"subjects": 10, "trials": 15}
        if workload.get("kind") == "qubit-spectrum":
            workload["epoch_steps"] = 2
        if "weights" in workload:
            workload["pretrain_steps"] = 2
    return given


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(prog="python -m benchmarks.readers", description=__doc__)
    result.add_argument("reader", choices=READERS)
    result.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="for the numbers and the records"
    )
    result.add_argument(
        "--mnist", type=Path, metavar="FOLDER", help="MNIST's idx files; without it they are fetched"
    )
    result.add_argument(
        "--stand-in",
        action="store_true",
        help="with --mnist: make 60,000 training images from its 10,000 test images, where only these are there",
    )
    result.add_argument(
        "--seeds", type=int, default=3, metavar="NUMBER", help="at most so many of each point (default: 3)"
    )
    result.add_argument(
        "--prepare", action="store_true", help="only what is not timed: data, and models that adapt"
    )
    result.add_argument(
        "--quick", action="store_true", help="see whether it runs: few steps, one seed, small data"
    )
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is missing, and write the reader's numbers.

    Raises:
        UserError: data are missing, a run did not complete, or a timed one shared the machine.
    """
    options = parser().parse_args(arguments)
    if options.stand_in and options.mnist is None:
        raise UserError("--stand-in: needs --mnist, the folder of the 10,000 test images")
    reader, out = READERS[options.reader], options.out.resolve()
    name = f"{options.reader}-quick" if options.quick else options.reader
    config = _studied(name, reader, out, options)
    few = 1 if options.quick else options.seeds
    runs = [
        f"{config.results}/runs/{point}/seed{seed}/{RECORD}"
        for point, seeds in reader.points.items()
        for seed in seeds[:few]
    ]
    if options.prepare:
        runs = [run for run in runs if not config.timed(Run.parse(run))]
        runs += [
            f"{config.results}/features/{each}/features.json"
            for each in config.studied
            if config.family(each).prepared
        ]
    if (
        runs
        and subprocess.run(
            ["snakemake", *runs, "--profile", "profiles/local", "--configfile", str(out / f"{name}.yaml")],
            cwd=ROOT,
        ).returncode
    ):
        raise UserError("Snakemake failed; call this again to continue")
    if not options.prepare:
        result, busy = numbers(options.reader, reader, Path(config.results))
        if busy and not options.quick:
            raise UserError(
                f"no numbers are written: others used the machine during {', '.join(sorted(busy))}; delete these and call this "
                "again when it is quiet"
            )
        _publish(out / f"{name}.csv", result)


def _studied(name: str, reader: Reader, out: Path, options: argparse.Namespace) -> Config:
    """The reader's study, written to a file of its own in `out`, with its results beside it."""
    settings = load(ROOT / "workflow" / "studies" / f"{reader.study}.yaml")
    settings["results"] = str(out / f"results-{name}")
    if options.quick:
        settings = quick(settings)
    out.mkdir(parents=True, exist_ok=True)
    if "mnist" in settings["workloads"] and options.mnist is not None:
        settings["workloads"]["mnist"]["folder"] = str(options.mnist.resolve())
        if options.stand_in:
            images = out / f"stand-in-{name}.npz"
            if not images.exists():
                files = [
                    options.mnist.resolve() / f"t10k-{each}-ubyte.gz"
                    for each in ("images-idx3", "labels-idx1")
                ]
                result = stand_in(mnist.load(files, 0), 600 if options.quick else IMAGES)
                content = io.BytesIO()
                np.savez(content, allow_pickle=False, **result)
                write_atomic(images, content.getvalue())
            kept = {key: settings["workloads"]["mnist"][key] for key in ("weights", "image_size")}
            settings["workloads"]["mnist"] = {"kind": "arrays", "file": str(images), "split": "given", **kept}
            print(f"the training images are a stand-in: MNIST's 10,000 test images, shifted ({images})")
    study = out / f"{name}.yaml"
    write_atomic(study, yaml.safe_dump(settings, sort_keys=False).encode())
    return analysis.read(study)


def _publish(file: Path, found: Sequence[Number]) -> None:
    write_atomic(file, csv_of([each._asdict() for each in found], Number._fields))
    for each in found:
        print(f"{each.number}: {each.shown} ({each.what}; {each.source})")


def published(name: str, reader: Reader) -> list[Number]:
    """The published numbers of a reader, ranges as they are given."""
    return [
        Number(
            name, number, text if low == high else f"{low:g} to {text}", None, low, high, None, unit,
            f"published: {what}", reader.source,
        )
        for number, low, high, unit, what in reader.published
        for text in (f"{high:g}x" if unit == "x" else f"{high:g} {unit}",)
    ]  # fmt: skip


def numbers(name: str, reader: Reader, results: Path) -> tuple[list[Number], set[str]]:
    """The published numbers of a reader and those that records give, and the timed runs that shared the machine."""
    records, result = Records(results), published(name, reader)
    measured = [*reader.measured(records)]
    where = "; ".join(sorted(records.machines))
    for number, estimate, unit, what in measured:
        if estimate is None:
            raise UserError(f"{name}: {number} has no seeds that can be compared")
        value = FACTORS[unit] * estimate.value
        low, high = (None if end is None else FACTORS[unit] * end for end in (estimate.low, estimate.high))
        text = _text(value, low, high, unit)
        result.append(Number(name, number, text, value, low, high, estimate.n, unit, what, where))
    return result, records.busy


def _text(value: float, low: float | None, high: float | None, unit: str) -> str:
    """A number with its unit and, where there is one, its interval; times below a minute and from a second on in seconds."""
    if (unit == "min" and value < 1) or (unit == "ms" and value >= 1000):
        factor = 60 if unit == "min" else 1e-3
        value, low, high = factor * value, low and factor * low, high and factor * high
        unit = "s"
    message = f"{rounded(value)}{unit if unit == 'x' else f' {unit}'.rstrip()}"
    return message if low is None or high is None else f"{message} ({rounded(low)} to {rounded(high)})"


def rounded(value: float) -> str:
    """Three digits, plainly where they are readable."""
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{float(f'{value:.3g}'):,g}"


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"benchmarks.readers: {error}")
