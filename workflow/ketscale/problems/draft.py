"""A first config for a user's own data, with comments, that trains at once: `ketscale init`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ketscale.config import Draft, Family, FileModel, Model, OwnCode
from ketscale.errors import UserError
from ketscale.grid import layout
from ketscale.measure import host
from ketscale.problems import arrays
from ketscale.problems.registry import FAMILIES, workload_of
from ketscale.words import suggestion

# Sizes of a first model. More than these take longer than a first look needs.
FIRST = {"qubits": 4, "layers": 2}
# The batch is at most this, and at most a quarter of the samples.
BATCH = 32
# The largest batch in a study of scaling.
LARGE = 256
DIGITS = Draft({"split_seed": 0, "weights": "selfsupervised", "image_size": 32}, 1797)

# What is written, by the names of its parts.
PARTS = dict(
    re.findall(
        r"^#% (\w+)\n(.*?)(?=^#% |\Z)", Path(__file__).with_name("first_study.yaml").read_text(), re.M | re.S
    )
)


class Chosen(NamedTuple):
    """The model of a first study: its name, its settings, and its block in the config if it needs one."""

    name: str
    settings: Model
    block: Mapping[str, Any] | None = None


def drafted(
    data: Path | None,
    command: str,
    kind: str | None,
    targets: tuple[str, ...],
    model: str | None,
    scaling: bool = False,
) -> tuple[str, tuple[str, ...]]:
    """The text of a config for a user's data, and what becomes of the columns of a table, a line each.

    data: a file or folder; None for the digits that come with scikit-learn. scaling: whether the study is of strong scaling
    over the layouts of this machine. command: the one that will run the study. kind: of the workload, where several read such a file.
    targets: the columns of a table that are to be predicted. model: 'FILE.py' or 'FILE.py:CLASS' of an own model.

    Raises:
        UserError: no kind of workload reads this, or several do; or the file or the model is not as it must be.
    """
    family, draft, kind = (
        (FAMILIES["images"], DIGITS, "digits") if data is None else _recognised(data, kind, targets)
    )
    workload = workload_of({"kind": kind, **draft.settings}, "workloads")
    family = family.for_task(workload)
    usual = _of_family(family)
    chosen = _own(model, family) if model else usual
    control = usual.settings.control
    name = _name(data.stem, "data") if data else kind
    sizes = {axis.name: FIRST.get(axis.name, 1) for axis in family.sizes}
    sizes = {axis: value if chosen.settings.takes(axis) else 0 for axis, value in sizes.items()}
    simulated = chosen.settings.takes("simulator")
    cores = len(os.sched_getaffinity(0))
    block = None if chosen.block is None else {**chosen.block, "control": control}
    values = {
        "data": data or "digits",
        "command": command,
        "results": f"results-{name}" + "-scaling" * scaling,
        "title": json.dumps(f"{chosen.name} on {name}"),
        "name": name,
        "workload": _inline({"kind": kind, **draft.settings}),
        "notes": "".join(f"\n  # {note}" for note in draft.notes),
        "model": chosen.name,
        "control": control,
        "sizes": "\n".join(f"      {axis}: {value}" for axis, value in sizes.items()),
        "without": ", ".join(f"{axis}: 0" for axis in sizes),
        "batch": max(
            1, min(LARGE if scaling else BATCH, 2 ** ((max(draft.samples, 4) // 4).bit_length() - 1))
        ),
        "simulator": "fused" if simulated else "none",
    }
    varied = ["simulator: [fused, default.qubit]"] if simulated else []
    varied += ["backend: [cpu-n1r1t1, ddp-cpu-n1r2t1]"] if cores > 1 else []
    values |= {
        "own": _inline(block) if block else "",
        "varied": ", ".join(varied),
        "axes": PARTS["axes"].format(**values),
        "early": PARTS["early"].format() if draft.validation else "",
        "fewer": PARTS["fewer"].format() if simulated else "",
    }
    wanted = {"head": True, "models": bool(block), "simulators": simulated, "protocols": True}
    if scaling:
        able = host.layouts(cores, len(host.describe()["gpus"]))
        values["layouts"] = ", ".join(each for each in able if layout(each)["ranks"] <= values["batch"])
        wanted["scaling"] = True
    else:
        wanted |= {"quality": True, "by_simulator": simulated, "by_layout": cores > 1, "parity": bool(varied)}
    return "".join(PARTS[part].format(**values) for part, needed in wanted.items() if needed), draft.notes


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
        there = arrays.read(data) if data.suffix == ".npz" else {}
        shapes = ", ".join(f"{name} {array.shape}" for name, array in there.items())
        has = f" (it has {shapes})" if shapes else ""
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
