"""A first config for a user's own data, with comments, that trains at once: `ketscale init`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ketscale.config import Draft, Family, FileModel, Model, OwnCode, suggestion
from ketscale.errors import UserError
from ketscale.problems import arrays
from ketscale.problems.registry import FAMILIES, workload_of

# Sizes of a first model. More than these take longer than a first look needs.
FIRST = {"qubits": 4, "layers": 2}
# The batch is at most this, and at most a quarter of the samples.
BATCH = 32

HEAD = """\
# A first study of {data}, made by `ketscale init`. docs/config.md describes every key.
#
#   {command} -n     # what would run
#   {command}        # run it; it ends in {results}/report.html
title: {title}
results: {results}

# Data are read, checked and split once (docs/own-data.md).
workloads:
  {name}: {workload}
{notes}"""
MODELS = """
# The constructor gets what it names: sizes, simulator, inputs, outputs, dropout, and whatever else stands here.
models:
  {name}: {block}
"""
SIMULATORS = """
# What evaluates circuits; docs/simulators.md has others, such as lightning.qubit.
simulators:
  fused: {device: fused, gradient: adjoint, batching: broadcast, placement: model}
  default.qubit: {device: default.qubit, gradient: backprop, batching: broadcast, placement: model}
"""
PROTOCOLS = """
protocols:
  # To the end, with validation: for accuracies.
  quality:
    precision: fp32
    timed: false
    epochs: 50
    learning_rate: 0.01
{early}  # Alone on the machine, and briefly: for times.
  timing:
    precision: fp32
    timed: true
    steps: 400
    sampled_steps: 5
    learning_rate: 0.001
{fewer}  # In double precision: do all compute the same?
  parity: {{precision: fp64, timed: false, steps: 20, learning_rate: 0.001}}
"""
EARLY = "    early_stopping: {monitor: loss, patience: 8}\n"
FEWER = "    steps_for: {default.qubit: 40}\n"
QUALITY = """
studies:
  # For more sizes give lists, such as qubits: [2, 4, 6]; more seeds make intervals narrower.
  quality:
    kind: accuracy
    question: Does {model} do better than {control}?
    axes: &first
      workload: {workload}
      model: {model}
{sizes}
      batch: {batch}
      simulator: {simulator}
      backend: cpu-n1r1t1
      protocol: quality
      seed: [0, 1, 2, 3, 4]
    points:
      - {{}}
      - {{model: {control}, {without}, simulator: none}}
"""
BY_SIMULATOR = """\
  simulators:
    kind: simulator
    question: Which simulator trains {model} fastest?
    axes: {{<<: *first, protocol: timing, simulator: [fused, default.qubit], seed: [0, 1, 2]}}
"""
BY_LAYOUT = """\
  # A second core as a thread, and as a process of its own with half of each batch.
  layouts:
    kind: strong
    question: Does a second core pay for {model}?
    axes: {{<<: *first, protocol: timing, backend: [cpu-n1r1t1, cpu-n1r1t2, ddp-cpu-n1r2t1], seed: [0, 1, 2]}}
"""
PARITY = """\
  parity:
    kind: parity
    question: Do all compute the same?
    axes: {{<<: *first, protocol: parity, {varied}, seed: 0}}
"""


class Chosen(NamedTuple):
    """The model of a first study: its name, its settings, and its block in the config if it needs one."""

    name: str
    settings: Model
    block: Mapping[str, Any] | None = None


def drafted(
    data: Path, command: str, kind: str | None, targets: tuple[str, ...], model: str | None
) -> tuple[str, tuple[str, ...]]:
    """The text of a config for a user's data, and what becomes of the columns of a table, a line each.

    data: a file or folder. command: the one that will run the study. kind: of the workload, where several read such a file.
    targets: the columns of a table that are to be predicted. model: 'FILE.py' or 'FILE.py:CLASS' of an own model.

    Raises:
        UserError: no kind of workload reads this, or several do; or the file or the model is not as it must be.
    """
    family, draft, kind = _recognised(data, kind, targets)
    workload = workload_of({"kind": kind, **draft.settings}, "workloads")
    family = family.for_task(workload)
    usual = _of_family(family)
    chosen = _own(model, family) if model else usual
    control = usual.settings.control
    name = _name(data.stem, "data")
    sizes = {axis.name: FIRST.get(axis.name, 1) for axis in family.sizes}
    sizes = {axis: value if chosen.settings.takes(axis) else 0 for axis, value in sizes.items()}
    simulated = chosen.settings.takes("simulator")
    cores = len(os.sched_getaffinity(0))
    block = None if chosen.block is None else {**chosen.block, "control": control}
    values = {
        "data": data,
        "command": command,
        "results": f"results-{name}",
        "title": json.dumps(f"{chosen.name} on {name}"),
        "name": name,
        "workload": _inline({"kind": kind, **draft.settings}),
        "notes": "".join(f"  # {note}\n" for note in draft.notes),
        "model": chosen.name,
        "control": control,
        "sizes": "\n".join(f"      {axis}: {value}" for axis, value in sizes.items()),
        "without": ", ".join(f"{axis}: 0" for axis in sizes),
        "batch": max(1, min(BATCH, 2 ** ((max(draft.samples, 4) // 4).bit_length() - 1))),
        "simulator": "fused" if simulated else "none",
    }
    varied = ["simulator: [fused, default.qubit]"] if simulated else []
    varied += ["backend: [cpu-n1r1t1, ddp-cpu-n1r2t1]"] if cores > 1 else []
    parts = [
        HEAD.format(**values),
        MODELS.format(name=chosen.name, block=_inline(block)) if block else "",
        SIMULATORS if simulated else "",
        PROTOCOLS.format(early=EARLY if draft.validation else "", fewer=FEWER if simulated else ""),
        QUALITY.format(**{**values, "workload": name}),
        BY_SIMULATOR.format(**values) if simulated else "",
        BY_LAYOUT.format(**values) if cores > 1 else "",
        PARITY.format(varied=", ".join(varied)) if varied else "",
    ]
    return "".join(parts), draft.notes


def _recognised(data: Path, kind: str | None, targets: tuple[str, ...]) -> tuple[Family, Draft, str]:
    """The family and kind of the workload that reads a file or folder, and its settings."""
    if not data.exists():
        raise UserError(f"{data}: there is no such file or folder; name another")
    kinds = {
        name: (family, settings)
        for family in FAMILIES.values()
        for name, settings in family.workloads.items()
    }
    if kind is not None and kind not in kinds:
        raise UserError(f"--kind: no kind of workload is called {kind}{suggestion(kind, list(kinds))}")
    found = {}
    for name in kinds if kind is None else (kind,):
        family, settings = kinds[name]
        draft = settings.draft(data, targets)
        if draft is not None:
            found[name] = family, draft
    if not found:
        shapes = arrays.shapes(data) if data.suffix == ".npz" else {}
        has = f" (it has {', '.join(f'{name} {shape}' for name, shape in shapes.items())})" if shapes else ""
        raise UserError(
            f"{data}: is no data that {kind or 'any kind of workload'} reads as it is{has}: bring a .csv file, an .npz file "
            "with x (rows, features) and y, or a folder with a folder of images for each class (docs/own-data.md)"
        )
    if len(found) > 1:
        raise UserError(f"{data}: may be {' or '.join(found)}; say which with --kind")
    ((name, (family, draft)),) = found.items()
    return family, draft, name


def _of_family(family: Family) -> Chosen:
    """The first of a family's models that has a control."""
    return next(Chosen(name, kind()) for name, kind in family.models.items() if kind.control is not None)


def _own(given: str, family: Family) -> Chosen:
    file, _, name = given.partition(":")
    code = OwnCode.read(file)
    if not name:
        if not code.classes:
            raise UserError(f"{file}: has no class; write the model as a class, a torch.nn.Module")
        if len(code.classes) != 1:
            raise UserError(f"{file}: has {len(code.classes)} classes; name the model as {file}:CLASS")
        (name,) = code.classes
    sizes = [axis.name for axis in family.sizes]
    block = {"file": file, "class": name}
    settings = FileModel.of_block(block, f"--model {given}", sizes)
    if settings.fitted:
        raise UserError(
            f"--model {given}: {name} has a method `fit`, and this writes studies of models that are trained by steps; copy the "
            "study of docs/own-models.md"
        )
    called = _name(Path(file).stem, "model")
    return Chosen(f"own-{called}" if called in family.models else called, settings, block)


def _name(stem: str, usual: str) -> str:
    """A name for what is in a file, which YAML reads as text."""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", stem).strip("-") or usual
    return name if yaml.safe_load(name) == name else f"{usual}-{name}"


def _inline(block: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(block), default_flow_style=True, sort_keys=False, width=10_000).strip()
