"""Runs, studies and paths: the only place that knows where a run's record lies.

Imports nothing of ours but the error type, so that the Snakefile, the command line and the tables all
build on it cheaply.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ketscale.errors import UserError

RUNS = "results/runs"
RECORD = "metrics.json"

# The axes as they stand in a path; Snakemake's wildcards and `Run.parse` share it.
PATTERN = "{workload}/{model}/q{qubits}-l{layers}-b{batch}/{simulator}/{backend}-n{nodes}r{ranks}t{threads}/{protocol}/seed{seed}"
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
CONSTRAINTS = {
    "workload": NAME,
    "model": NAME,
    "qubits": r"\d+",
    "layers": r"\d+",
    "batch": r"\d+",
    "simulator": NAME,
    "backend": r"[a-z]+(?:-cpu)?",
    "nodes": r"\d+",
    "ranks": r"\d+",
    "threads": r"\d+",
    "protocol": NAME,
    "seed": r"\d+",
}
_PATH = re.compile(
    "(?:^|/)"
    + re.sub(r"\{(\w+)\}", lambda m: f"(?P<{m[1]}>{CONSTRAINTS[m[1]]})", PATTERN)
    + f"(?:/{re.escape(RECORD)})?/?$"
)
_PLACE = re.compile(r"^(?P<backend>[a-z]+(?:-cpu)?)-n(?P<nodes>\d+)r(?P<ranks>\d+)t(?P<threads>\d+)$")
INTEGERS = ("qubits", "layers", "batch", "nodes", "ranks", "threads", "seed")


@dataclass(frozen=True, order=True)
class Run:
    """One point of the grid, trained once: one directory, one record."""

    workload: str
    model: str
    qubits: int
    layers: int
    batch: int
    simulator: str
    backend: str
    nodes: int
    ranks: int
    threads: int
    protocol: str
    seed: int

    @property
    def place(self) -> str:
        """Where the ranks run, e.g. 'mpi-n1r2t1'."""
        return f"{self.backend}-n{self.nodes}r{self.ranks}t{self.threads}"

    @property
    def folder(self) -> str:
        """The run's directory, relative to the project's root."""
        return f"{RUNS}/{PATTERN.format(**asdict(self))}"

    @property
    def path(self) -> str:
        """The run's record, relative to the project's root; `parse` is its inverse."""
        return f"{self.folder}/{RECORD}"

    @classmethod
    def parse(cls, path: str) -> Run:
        """The run whose record or folder is `path`.

        Raises:
            UserError: the path does not name a run.
        """
        match = _PATH.search(str(path))
        if match is None:
            raise UserError(f"{path}: not a run's path; it should look like {RUNS}/{PATTERN}/{RECORD}")
        return cls.of(match.groupdict())

    @classmethod
    def of(cls, axes: Mapping[str, Any]) -> Run:
        """The run with these axes, such as Snakemake's wildcards (strings become integers where needed)."""
        values: dict[str, Any] = {
            f.name: int(axes[f.name]) if f.name in INTEGERS else str(axes[f.name]) for f in fields(cls)
        }
        return cls(**values)


def place(text: str) -> dict[str, Any]:
    """Split 'mpi-n1r2t1' into backend, nodes, ranks and threads."""
    match = _PLACE.match(text)
    if match is None:
        raise UserError(f"backend {text!r}: write it as NAME-n<nodes>r<ranks>t<threads>, e.g. mpi-n1r2t1")
    return {k: v if k == "backend" else int(v) for k, v in match.groupdict().items()}


@dataclass(frozen=True)
class Study:
    """A named subset of the grid that asks one question; studies share runs."""

    name: str
    kind: str
    question: str
    runs: tuple[Run, ...]


def studies(config: Mapping[str, Any]) -> tuple[Study, ...]:
    """The studies of a config that has passed its schema, each with its runs in scheduling order."""
    return tuple(
        Study(name, block["kind"], block["question"], tuple(_expand(block)))
        for name, block in config["studies"].items()
    )


def runs(config: Mapping[str, Any]) -> tuple[Run, ...]:
    """Every run of every study once, in scheduling order.

    Timed runs go seed by seed, so that the points of one ratio lie close in time; before them go the untimed
    ones, which share the machine and so fill it best together.
    """
    unique = dict.fromkeys(run for study in studies(config) for run in study.runs)
    protocols = config["protocols"]
    return tuple(sorted(unique, key=lambda run: (protocols[run.protocol]["timed"], run.seed)))


def _expand(block: Mapping[str, Any]) -> Iterable[Run]:
    seen: dict[Run, None] = {}
    for point in block.get("points", [{}]):
        axes = {**block.get("axes", {}), **point}
        values = [v if isinstance(v, list) else [v] for v in axes.values()]
        for combination in itertools.product(*values):
            chosen = dict(zip(axes, combination, strict=True))
            chosen |= place(chosen.pop("backend"))
            seen[Run.of(chosen)] = None
    return seen


# Settings that say where something lies on this machine; they change no number and enter no hash.
MACHINE_SETTINGS = ("folder", "file", "weights_folder")


def resolve(config: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Everything of the config that decides this run's numbers and timing, as plain sorted values.

    Raises:
        UserError: the config does not define the run's workload, simulator or protocol.
    """
    blocks: dict[str, dict[str, Any]] = {}
    for kind, name in (
        ("workloads", run.workload),
        ("simulators", run.simulator),
        ("protocols", run.protocol),
    ):
        if name == "none" and kind == "simulators":
            blocks[kind] = {}
        elif name not in config[kind]:
            raise UserError(
                f"{run.path}: the config defines no {name!r} under {kind}; it has {', '.join(config[kind])}"
            )
        else:
            blocks[kind] = dict(config[kind][name])
    protocol = blocks["protocols"]
    slow = protocol.pop("steps_for", {})
    if run.simulator in slow:
        protocol["steps"] = slow[run.simulator]
    return {
        "run": asdict(run),
        "workload": {k: v for k, v in blocks["workloads"].items() if k not in MACHINE_SETTINGS},
        "simulator": blocks["simulators"],
        "protocol": protocol,
    }


def canonical(settings: Mapping[str, Any]) -> str:
    """One text for equal settings: sorted JSON without spaces."""
    return json.dumps(settings, sort_keys=True, separators=(",", ":"))


def config_hash(settings: Mapping[str, Any]) -> str:
    """SHA-256 of the resolved settings, hexadecimal."""
    return hashlib.sha256(canonical(settings).encode()).hexdigest()
