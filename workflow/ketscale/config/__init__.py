"""Config files: read them, and refuse what cannot work before anything runs, in one or two lines each.

Light on purpose: every start of Snakemake imports this.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ketscale import grid
from ketscale.config.kinds import KINDS
from ketscale.config.points import check_axes, check_protocol, check_simulator, impossible
from ketscale.config.schema import check_schema, suggestion
from ketscale.errors import UserError
from ketscale.grid import Run, Study
from ketscale.problems.models import MODELS
from ketscale.problems.workloads import WORKLOADS, files


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
        raise UserError(f"{path}: not a config; write its settings as `key: value`")
    return config


def check(config: Mapping[str, Any]) -> None:
    """Refuse a config that breaks its schema or asks for something impossible.

    Raises:
        UserError: names the setting, what is wrong and what to do; the first problem found.
    """
    check_schema(config)
    for name, simulator in config["simulators"].items():
        check_simulator(name, simulator)
    for name, protocol in config["protocols"].items():
        check_protocol(name, protocol, config)
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
        check_axes(name, block, config)
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
    for problem in impossible(run, config):
        raise UserError(f"{run.path}: {problem}")


def study(config: Mapping[str, Any]) -> dict[str, Any]:
    """What tables, figures and report are made for: the config without `partial` and without where data lie."""
    workloads = {
        name: {key: value for key, value in block.items() if key not in grid.MACHINE_SETTINGS}
        for name, block in config["workloads"].items()
    }
    return {**{key: value for key, value in config.items() if key != "partial"}, "workloads": workloads}


def source_folder(config: Mapping[str, Any], workload: str) -> Path | None:
    """Where a workload's files lie, or will when they are fetched; None for data that need no file."""
    block = config["workloads"][workload]
    if not WORKLOADS[workload].reads_files:
        return None
    if workload == "sentences":
        return Path(block["file"]).expanduser() if "file" in block else None
    return Path(block["folder"]).expanduser() if "folder" in block else Path("results/data") / workload


def source_files(config: Mapping[str, Any], workload: str) -> list[str]:
    """The files that a workload reads (idx files gzipped or not); none for data that need no file.

    Raises:
        UserError: the folder lacks one of them, or test images are asked for and no folder is named.
    """
    block, folder = config["workloads"][workload], source_folder(config, workload)
    if folder is None:
        return []
    if workload == "sentences":
        if not folder.is_file():
            raise UserError(
                f"workloads.sentences.file: there is no file {folder}; name another, or leave file out for those built in"
            )
        return [str(folder)]
    endings = (".gz", "") if workload == "mnist" else ("",)
    if "folder" not in block:
        if block["split"] == "test-images":
            raise UserError(
                f"workloads.{workload}: split: test-images needs folder, where its t10k files lie; "
                "split: original fetches all files"
            )
        return [f"{folder}/{name}{endings[0]}" for name in files(workload, block)]
    found = []
    for name in files(workload, block):
        path = next((p for p in (folder / f"{name}{ending}" for ending in endings) if p.is_file()), None)
        if path is None:
            raise UserError(
                f"workloads.{workload}.folder: {folder} has no {name}{endings[0]}, which "
                f"{'split: ' + block['split'] if workload == 'mnist' else 'subjects and runs'} need; "
                "name another folder, ask for less, or leave folder out to fetch the files"
            )
        found.append(str(path))
    return found


def _check_study(study: Study, config: Mapping[str, Any]) -> None:
    where = f"studies.{study.name}"
    for run in study.runs:
        for problem in impossible(run, config):
            raise UserError(f"{where}: {problem}")
    if check_kind := KINDS.get(study.kind):
        for problem in check_kind(study, config):
            raise UserError(f"{where}: {problem}")
