"""Config files: read them, and refuse what cannot work before anything runs, in one or two lines each.

Light on purpose: every start of Snakemake imports this.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ketscale import grid
from ketscale.errors import UserError
from ketscale.grid import Run, Study
from ketscale.models.catalogue import MODELS
from ketscale.simulators.catalogue import SUPPORTED
from ketscale.workloads.catalogue import WORKLOADS

SCHEMA = Path(__file__).resolve().parents[1] / "schemas" / "config.schema.yaml"
SINGLE = ("cpu", "gpu")
WITHOUT_GPU = ("cpu", "ddp-cpu", "mpi")
AXES = ("workload", "model", "qubits", "layers", "batch", "simulator", "backend", "protocol", "seed")
_TYPES = {
    "object": "a block of settings",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


class _Loader(yaml.SafeLoader):
    """YAML in which a key given twice is an error instead of a lost setting."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool | None):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key is not plain text", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} is given twice; keep one of the two", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge `<<` as usual, but note the keys that stand there first: merged ones may be overridden."""
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            where = [key.start_mark for key, _ in node.value if key.value == twice][1]
            raise yaml.constructor.ConstructorError(
                None, None, f"{twice!r} is given twice; keep one of the two", where
            )
        super().flatten_mapping(node)


def load(path: Path | str) -> dict[str, Any]:
    """The settings in a config file, not yet checked.

    Raises:
        UserError: the file is missing or is not YAML, or gives a key twice.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        config = yaml.load(text, _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}{place}: {getattr(error, 'problem', None) or 'not YAML'}") from None
    if not isinstance(config, dict):
        raise UserError(
            f"{path}: not a config; it should hold title, workloads, simulators, protocols and studies"
        )
    return config


def check(config: Mapping[str, Any]) -> None:
    """Refuse a config that breaks its schema or asks for something impossible.

    Raises:
        UserError: names the setting, what is wrong and what to do; the first problem found.
    """
    _check_schema(config)
    for name, simulator in config["simulators"].items():
        _check_simulator(name, simulator)
    for name, protocol in config["protocols"].items():
        _check_protocol(name, protocol, config)
    for name, workload in config["workloads"].items():
        if "weights_folder" in workload and workload["weights"] != "imagenet":
            raise UserError(
                f"workloads.{name}.weights_folder: only weights: imagenet are read from a folder; leave it out"
            )
    folders = {w["weights_folder"] for w in config["workloads"].values() if "weights_folder" in w}
    if len(folders) > 1:
        raise UserError(
            f"workloads: several weights_folder ({', '.join(sorted(folders))}); name one for all of them"
        )
    for name, block in config["studies"].items():
        _check_axes(name, block, config)
    for study in grid.studies(config):
        _check_study(study, config)


def check_run(run: Run, config: Mapping[str, Any]) -> None:
    """Refuse a run, of the grid or not, that a checked config cannot train.

    Raises:
        UserError: a name of its path is not defined, or its axes do not go together.
    """
    if run.model not in MODELS:
        raise UserError(f"{run.path}: no model is called {run.model}{suggestion(run.model, MODELS)}")
    grid.resolve(config, run)
    for problem in _impossible(run, config):
        raise UserError(f"{run.path}: {problem}")


def study(config: Mapping[str, Any]) -> dict[str, Any]:
    """What tables, figures and report are made for: the config without `partial` and without where data lie."""
    workloads = {
        name: {key: value for key, value in block.items() if key not in grid.MACHINE_SETTINGS}
        for name, block in config["workloads"].items()
    }
    return {**{key: value for key, value in config.items() if key != "partial"}, "workloads": workloads}


def source_files(config: Mapping[str, Any], workload: str) -> list[str]:
    """The idx files that a workload reads, gzipped or not; none for data that ship with a library.

    Raises:
        UserError: the folder lacks one of them, or test images are asked for and no folder is named.
    """
    block = config["workloads"][workload]
    names = WORKLOADS[workload].files.get(block.get("split"), ())
    if "folder" not in block:
        if block.get("split") == "test-images":
            raise UserError(
                f"workloads.{workload}: split: test-images needs folder, where its t10k files lie; "
                "split: original fetches all files"
            )
        return [f"results/data/{workload}/{name}.gz" for name in names]
    folder = Path(block["folder"]).expanduser()
    files = []
    for name in names:
        found = next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)
        if found is None:
            raise UserError(
                f"workloads.{workload}.folder: {folder} has no {name}.gz, which split: {block['split']} needs; "
                "name another folder or split, or leave folder out to fetch the files"
            )
        files.append(str(found))
    return files


# ---------------------------------------------------------------- the schema


@functools.cache
def _validator() -> Any:
    import jsonschema

    return jsonschema.Draft202012Validator(yaml.safe_load(SCHEMA.read_text()))


def _check_schema(config: Any) -> None:
    errors = sorted(
        _validator().iter_errors(config), key=lambda error: (len(error.absolute_path), str(error.path))
    )
    # A misspelt key breaks two rules: the right one is missing and the wrong one unknown. Say the latter.
    errors.sort(key=lambda error: error.validator != "additionalProperties")
    if errors:
        raise UserError(_explain(errors[0]))


def _explain(error: Any) -> str:
    """What is wrong with a setting, in the words of the config's author rather than of JSON schema."""
    where = ".".join(map(str, error.absolute_path)) or "config"
    value, rule = error.instance, error.validator_value
    match error.validator:
        case "additionalProperties":
            known = list(error.schema.get("properties", {}))
            unknown = next(str(key) for key in value if key not in known)
            path = f"{where}.{unknown}" if where != "config" else unknown
            return f"{path}: unknown setting{suggestion(unknown, known)}"
        case "required":
            missing = next(key for key in rule if key not in value)
            described = error.schema.get("properties", {}).get(missing, {}).get("description")
            return f"{where}: {missing} is missing" + (f" ({_lower(described)})" if described else "; add it")
        case "type":
            return f"{where}: {_shown(value)} should be {_kind(rule)}{_number_hint(value, rule)}"
        case "enum":
            return f"{where}: {_shown(value)} is not one of its values{suggestion(str(value), list(map(str, rule)))}"
        case "anyOf":
            # A value or a list of values: what holds for the list's items says what is wrong with a value.
            inner = [
                e
                for e in error.context
                if isinstance(value, list) == (e.schema.get("type") == "array" or len(e.path))
            ]
            return _explain(inner[0]) if inner else f"{where}: {_shown(value)} does not fit"
        case "oneOf":
            named = [next(iter(option["required"])) for option in rule if "required" in option]
            given = [name for name in named if name in value]
            return f"{where}: give {' or '.join(named)}, {'not both' if given else 'one of them is missing'}"
        case "minimum" | "exclusiveMinimum":
            return f"{where}: {value} is too small; it should be {'at least' if error.validator == 'minimum' else 'above'} {rule}"
        case "maximum" | "exclusiveMaximum":
            return f"{where}: {value} is too large; it should be {'at most' if error.validator == 'maximum' else 'below'} {rule}"
        case "minItems":
            return f"{where}: the list is empty; give at least one value, or leave the setting out"
        case "minProperties":
            return f"{where}: nothing is defined here; define at least one"
        case "uniqueItems":
            return f"{where}: a value is given twice in {_shown(value)}; keep one"
        case "pattern" if "n[1-9]" in rule:
            return (
                f"{where}: {_shown(value)} is no place to run; write NAME-n<nodes>r<ranks>t<threads>, e.g. mpi-n1r2t1, "
                "with NAME one of cpu, gpu, ddp, ddp-cpu, mpi"
            )
        case "pattern":
            return f"{where}: {_shown(value)} cannot be a name; use letters, digits and _ . - (it stands in paths)"
    return f"{where}: {error.message}"


def suggestion(name: str, known: Collection[str]) -> str:
    """'; did you mean ...?' for a misspelt name, else what there is to choose from."""
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return (
        f"; did you mean {close[0]}?"
        if close
        else f"; choose from {', '.join(known) or 'nothing: none is defined'}"
    )


def _kind(rule: str | list[str]) -> str:
    return " or ".join(_TYPES.get(kind, kind) for kind in ([rule] if isinstance(rule, str) else rule))


def _shown(value: Any) -> str:
    text = (
        "a block of settings" if isinstance(value, Mapping) else "nothing" if value is None else repr(value)
    )
    return text if len(text) <= 60 else f"{text[:57]}..."


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _number_hint(value: Any, rule: str | list[str]) -> str:
    if isinstance(value, str) and "number" in rule and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return f"; YAML reads {value} as text, so write {float(value)!r}"
    return ""


# ---------------------------------------------------------------- what the schema cannot say


def _check_simulator(name: str, simulator: Mapping[str, Any]) -> None:
    triple = (simulator["device"], simulator["gradient"], simulator["batching"])
    if name == "none":
        raise UserError(
            "simulators.none: none is the simulator of a classical model; give this one another name"
        )
    if triple not in SUPPORTED:
        able = sorted(
            f"{gradient} with {batching}" for device, gradient, batching in SUPPORTED if device == triple[0]
        )
        raise UserError(
            f"simulators.{name}: {triple[0]} cannot do {triple[1]} with {triple[2]} batching; it can do {', '.join(able)}"
        )


def _check_protocol(name: str, protocol: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    where = f"protocols.{name}"
    if "steps" in protocol:
        for setting in ("plateau", "early_stopping"):
            if setting in protocol:
                raise UserError(
                    f"{where}.{setting}: needs validation, which a protocol with steps has none of; use epochs or leave it out"
                )
    elif "steps_for" in protocol:
        raise UserError(f"{where}.steps_for: only shortens a protocol with steps; this one has epochs")
    for simulator in protocol.get("steps_for", {}):
        if simulator not in config["simulators"]:
            raise UserError(
                f"{where}.steps_for.{simulator}: no such simulator{suggestion(simulator, config['simulators'])}"
            )
    if "steps" not in protocol:
        return
    warmup, sampled = protocol.get("warmup", 2), protocol.get("sampled_steps", 0)
    lengths = {f"{where}.steps": protocol["steps"]}
    lengths |= {f"{where}.steps_for.{key}": value for key, value in protocol.get("steps_for", {}).items()}
    for setting, steps in lengths.items():
        if steps <= warmup:
            raise UserError(
                f"{setting}: {steps} steps are all warm-up (warmup: {warmup}); give more than {warmup}"
            )
    # Slow simulators sample fewer steps than the protocol says; the protocol's own steps must leave some unsampled.
    if sampled and warmup + sampled >= protocol["steps"]:
        raise UserError(
            f"{where}.sampled_steps: {sampled} sampled and {warmup} warm-up steps leave none of {protocol['steps']} to time; "
            "give more steps or sample fewer"
        )


def _check_axes(name: str, block: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Every point of a study has every axis, and names only what the config or the package defines."""
    known = {
        "workload": config["workloads"],
        "model": MODELS,
        "simulator": [*config["simulators"], "none"],
        "protocol": config["protocols"],
    }
    for index, point in enumerate(block.get("points", [{}])):
        axes = {**block.get("axes", {}), **point}
        where = f"studies.{name}" + (f".points.{index}" if "points" in block else "")
        for axis in AXES:
            if axis not in axes:
                raise UserError(f"{where}: {axis} is missing; give it in axes, or in every point")
        for axis, names in known.items():
            for value in _listed(axes[axis]):
                if value not in names:
                    place = f"{where}.{axis}" if axis in point else f"studies.{name}.axes.{axis}"
                    raise UserError(f"{place}: no {axis} is called {value}{suggestion(value, list(names))}")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _check_study(study: Study, config: Mapping[str, Any]) -> None:
    where = f"studies.{study.name}"
    for run in study.runs:
        for problem in _impossible(run, config):
            raise UserError(f"{where}: {problem}")
    if check_kind := _KINDS.get(study.kind):
        for problem in check_kind(study, config):
            raise UserError(f"{where}: {problem}")


def _impossible(run: Run, config: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with one run whose names are all defined."""
    protocol = config["protocols"][run.protocol]
    if MODELS[run.model].quantum:
        if run.simulator == "none":
            yield f"{run.model} has a circuit, so its simulator cannot be none; name one of {', '.join(config['simulators'])}"
        if run.qubits == 0 or run.layers == 0:
            yield f"{run.model} has a circuit, so it needs at least one of qubits and layers (q{run.qubits}-l{run.layers})"
    elif run.simulator != "none" or run.qubits or run.layers:
        yield (
            f"{run.model} is classical: give it simulator: none, qubits: 0 and layers: 0 "
            f"(not {run.simulator}, {run.qubits} and {run.layers}), in a point of its own"
        )
    if run.backend in SINGLE and (run.ranks, run.nodes) != (1, 1):
        yield f"backend {run.place}: {run.backend} is one process; write {run.backend}-n1r1t{run.threads}, or use ddp or mpi"
    if run.ranks % run.nodes:
        yield (
            f"backend {run.place}: {run.ranks} ranks do not fill {run.nodes} nodes evenly; "
            "ranks counts all of them, so make it a multiple of nodes"
        )
    if protocol["precision"] == "amp" and run.backend in WITHOUT_GPU:
        yield f"protocol {run.protocol} has precision: amp, which only GPUs have, but backend {run.place} uses none"
    simulator = config["simulators"].get(run.simulator, {})
    if run.backend in WITHOUT_GPU and "gpu" in (
        simulator.get("placement"),
        simulator.get("device", "").split(".")[-1],
    ):
        yield f"simulator {run.simulator} needs a GPU, but backend {run.place} uses none; use gpu-n1r1t1 or ddp"


# ---------------------------------------------------------------- what a kind of study means


def _check_parity(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    for run in study.runs:
        protocol = config["protocols"][run.protocol]
        if protocol["precision"] != "fp64":
            yield f"parity compares losses in fp64, but protocol {run.protocol} has precision: {protocol['precision']}"
        if protocol.get("steps", 0) < 1:
            yield f"parity compares the first steps, but protocol {run.protocol} has epochs; give it steps"


def _check_strong(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    batches = sorted({run.batch for run in study.runs})
    if len(batches) > 1:
        yield f"strong scaling has one global batch, not {', '.join(map(str, batches))}; give one, or make it kind: weak"
    yield from _check_baseline(study, config)


def _check_weak(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    """The batch is in proportion to the cores (ranks x threads)."""
    series: dict[tuple[Any, ...], dict[float, Run]] = {}
    for run in study.runs:
        key = (run.workload, run.model, run.qubits, run.layers, run.simulator, run.protocol, run.seed)
        shares = series.setdefault(key, {})
        shares.setdefault(run.batch / (run.ranks * run.threads), run)
        if len(shares) > 1:
            first, second = shares.values()
            yield (
                f"weak scaling keeps batch / (ranks x threads) the same, but batch {first.batch} on {first.place} "
                f"and {second.batch} on {second.place} differ; give each place its batch in points"
            )
    yield from _check_baseline(study, config)


def _check_baseline(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    if not any(run.ranks * run.threads == 1 for run in study.runs):
        yield f"{study.kind} scaling needs a run on one core to compare with; add backend: cpu-n1r1t1"


def _check_accuracy(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    for run in study.runs:
        if "epochs" not in config["protocols"][run.protocol]:
            yield f"accuracy needs validation and test, but protocol {run.protocol} has steps; give it a protocol with epochs"


def _check_varies(*axes: str) -> Callable[[Study, Mapping[str, Any]], Iterable[str]]:
    """A sweep has at least two values of what it varies."""

    def check_sweep(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
        for axis in axes:
            if len({getattr(run, axis) for run in study.runs}) < 2:
                yield f"a study of kind {study.kind} compares values of {axis}, but has only one; give a list of them"

    return check_sweep


def _check_features(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    if {config["protocols"][run.protocol]["features"] for run in study.runs} != {"cached", "inline"}:
        yield "a study of kind features compares protocols with features: cached and features: inline; give it one of each"


_KINDS: dict[str, Callable[[Study, Mapping[str, Any]], Iterable[str]]] = {
    "simulator": _check_varies("simulator"),
    "strong": _check_strong,
    "weak": _check_weak,
    "batch": _check_varies("batch"),
    "depth": _check_varies("layers"),
    "qubits": _check_varies("qubits"),
    "features": _check_features,
    "accuracy": _check_accuracy,
    "parity": _check_parity,
}
