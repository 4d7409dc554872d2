"""What `ketscale try` has noted of a workload: which models took a step.

Imports next to nothing: the Snakefile asks here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale import grid, strict_json

if TYPE_CHECKING:
    from ketscale.config import Config, Settings


def key(content: Mapping[str, Any]) -> str:
    """What is tried of a run with these settings (`Settings.content`): one step says how all of them go.

    Another split of the same data is none of another kind, and a probe is no step. A model in a file is tried in each
    precision, with and without dropout, and on shared batches where ranks share them.
    """
    parts: dict[str, Any] = {part: content[part] for part in ("workload", "model", "simulator")}
    parts["workload"] = {name: value for name, value in parts["workload"].items() if name != "split_seed"}
    protocol = content["protocol"]
    if protocol["probe"]:
        parts["probe"] = True
    if "code" in content["model"]:
        parts["how"] = content["run"]["ranks"] > 1, protocol["precision"], bool(protocol["dropout"])
    return grid.config_hash(parts)


def smallest(config: Config, workload: str) -> dict[str, Settings]:
    """For each model and simulator of the runs with a workload's data the smallest run, by `key`, with this split of them.

    Of a search its trials are tried.
    """
    found: dict[str, Settings] = {}
    data = config.data(workload)
    for run in dict.fromkeys(
        replace(run, workload=workload) for run in config.runs if config.data(run.workload) == data
    ):
        settings = config.settings(run)
        if settings.protocol.search is None:
            name = key(settings.content)
            # Neither seeds nor layouts make a difference.
            found[name] = min(
                found.get(name, settings),
                settings,
                key=lambda each: (sum(each.sizes.values()), each.run.batch, each.run),
            )
    return found


def write(note: Path, features: str | None, tried: Iterable[str]) -> None:
    """Write the note: the hash of the prepared data, and what was tried, as `key` names it."""
    strict_json.write(note, {"features": features, "tried": [*tried]})


def covers(note: Path, settings: Settings, features: str | None) -> bool:
    """Whether a note says of a run, of these settings and prepared data, that its step was tried."""
    found = strict_json.of_note(note)
    return found.get("features") == features and key(settings.content) in found.get("tried", [])
