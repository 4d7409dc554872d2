"""A first config for a user's own data, with comments, that trains at once: `ketscale init`."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import os
import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import jinja2
import yaml
from numpy.typing import NDArray

from ketscale.config import Family, OwnCode, workload_kinds
from ketscale.errors import UserError
from ketscale.grid import layout
from ketscale.measure import host
from ketscale.problems import arrays, own_samples
from ketscale.problems.images.specification import ImageFolder
from ketscale.problems.leaks import leaks, warning
from ketscale.problems.own_samples import Draft
from ketscale.problems.registry import FAMILIES, family_of, workload_of
from ketscale.problems.rows import own
from ketscale.problems.rows.specification import RowsWorkload
from ketscale.words import suggestion

# Sizes of a first model. More than these take longer than a first look needs.
FIRST = {"qubits": 4, "layers": 2}
# The batch is at most this, and at most a quarter of the samples.
BATCH = 32
# The largest batch in a study of scaling.
LARGE = 256
NETWORK: dict[str, Any] = {"weights": "selfsupervised", "image_size": 32}
DIGITS = Draft({"split_seed": 0, **NETWORK}, 1797)
# The kinds of arrays: the name of their samples, besides x, how many dimensions they have, and further settings.
ARRAYS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "rows": ("features", (2,), {}),
    "arrays": ("images", (3, 4), NETWORK),
    "series": ("signals", (3,), {"split": "trials"}),
}

TEMPLATE = Path(__file__).with_name("first_study.yaml.j2")


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
    kind, draft = ("digits", DIGITS) if data is None else _recognised(data, kind, targets)
    workload = workload_of({"kind": kind, **draft.settings}, "workloads")
    family, notes = family_of(workload), draft.notes
    if isinstance(workload, RowsWorkload):
        with contextlib.suppress(UserError):  # data that cannot be read raise an error when they are prepared
            notes = (*notes, *filter(None, [warning(leaks(workload.load(None)))]))
    main, settings = next((name, kind()) for name, kind in family.models.items() if kind.control is not None)
    title, block, arguments = _own(model, family) if model else (main, {}, ())

    def takes(name: str) -> bool:
        """Whether the model has this size, or `simulator`."""
        return name in arguments if block else settings.takes(name)

    name = _name(data.stem, "data") if data else kind
    sizes = {axis.name: FIRST.get(axis.name, 1) if takes(axis.name) else 0 for axis in family.sizes}
    simulated, cores = takes("simulator"), len(os.sched_getaffinity(0))
    batch = min(LARGE if scaling else BATCH, 2 ** ((max(draft.samples, 4) // 4).bit_length() - 1))
    layouts = host.layouts(cores, len(host.describe()["gpus"])) if scaling else []
    varied = ["simulator: [fused, default.qubit]"] if simulated else []
    varied += ["backend: [cpu-n1r1t1, ddp-cpu-n1r2t1]"] if cores > 1 else []
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    text = environment.from_string(TEMPLATE.read_text("utf-8")).render(
        data=data or "digits",
        command=command,
        results=f"results-{name}" + "-scaling" * scaling,
        title=json.dumps(f"{title} on {name}"),
        name=name,
        workload=_inline({"kind": kind, **draft.settings}),
        notes=notes,
        model=title,
        own=_inline({**block, "control": settings.control}) if block else "",
        control=settings.control,
        sizes=sizes,
        without=", ".join(f"{axis}: 0" for axis in sizes),
        batch=batch,
        simulated=simulated,
        simulator="fused" if simulated else "none",
        validation=draft.validation,
        baselines=", ".join(each for each, of in family.models.items() if of.baseline and _installed(each)),
        scaling=scaling,
        layouts=", ".join(each for each in layouts if layout(each)["ranks"] <= batch),
        cores=cores,
        varied=", ".join(varied),
    )
    return text, notes


def _recognised(data: Path, kind: str | None, targets: tuple[str, ...]) -> tuple[str, Draft]:
    """The kind of the workload that reads a file or folder, and its settings."""
    if not data.exists():
        raise UserError(f"{data}: there is no such file or folder; name another")
    kinds = list(workload_kinds(FAMILIES.values()))
    if kind is not None and kind not in kinds:
        raise UserError(f"--kind: no kind of workload is called {kind}{suggestion(kind, kinds)}")
    there: Mapping[str, NDArray[Any]] = {}
    drafts: dict[str, Draft] = {}
    if data.suffix.lower() in (".csv", ".tsv"):
        drafts["table"] = own.draft(data, targets)
    elif data.is_dir() and not targets:
        images = ImageFolder(folder=str(data), **NETWORK).sources()
        drafts["image-folder"] = Draft({"folder": str(data), **NETWORK}, len(images))
    elif data.suffix == ".npz" and not targets:
        there = arrays.read(data)
        for name, (samples, dimensions, more) in ARRAYS.items():
            draft = own_samples.draft(there, data, samples, dimensions)
            if draft is not None:
                settings = {"file": str(data), **more, **draft.settings}
                drafts[name] = draft._replace(settings=settings)
    drafts = {name: draft for name, draft in drafts.items() if kind in (None, name)}
    if not drafts:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in there.items())
        has = f" (it has {shapes})" if shapes else ""
        raise UserError(
            f"{data}: is no data that {kind or 'any kind of workload'} reads as it is{has}: bring a .csv file, an .npz file "
            "with x (rows, features) and y, or a folder with a folder of images for each class (docs/own-data.md)"
        )
    if len(drafts) > 1:
        raise UserError(f"{data}: may be {' or '.join(drafts)}; say which with --kind")
    return next(iter(drafts.items()))


def _installed(kind: str) -> bool:
    """Whether a baseline finds the package that fits it, which an extra brings."""
    package = {"linear": "sklearn", "csp": "mne"}.get(kind)
    return package is None or importlib.util.find_spec(package) is not None


def _own(text: str, family: Family) -> tuple[str, dict[str, str], Container[str]]:
    """The name of a model of the user's own, its block in the config, and the arguments of its constructor."""
    from torch.nn import Module

    from ketscale.problems import importer
    from ketscale.problems.fitted import Fitted

    file, _, name = text.partition(":")
    code = OwnCode.read(file)
    module = importer.imported(code, code.hash)
    classes = {
        each.__name__: each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Module) and each.__module__ == module.__name__
    }
    if name not in classes and (name or len(classes) != 1):
        raise UserError(f"--model {text}: choose from {', '.join(classes) or 'no modules'}, as {file}:CLASS")
    name = name or next(iter(classes))
    if issubclass(classes[name], Fitted):
        raise UserError(f"--model {text}: {name} is fitted; copy the study of docs/own-models.md")
    called = _name(Path(file).stem if len(classes) == 1 else name, "model")
    called = f"own-{called}" if called in family.models else called
    return called, {"file": file, "class": name}, inspect.signature(classes[name]).parameters


def _name(stem: str, default: str) -> str:
    """A name for what is in a file, which YAML reads as text."""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", stem).strip("-") or default
    return name if yaml.safe_load(name) == name else f"{default}-{name}"


def _inline(block: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(block), default_flow_style=True, sort_keys=False, width=10_000).strip()
