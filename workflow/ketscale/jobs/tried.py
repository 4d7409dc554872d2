"""What `ketscale try` has noted of a workload: which models took a step, and which of them stack.

Imports next to nothing: `ketscale launch` and the Snakefile ask here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale import grid, strict_json
from ketscale.words import duration

if TYPE_CHECKING:
    from ketscale.config import Config, Settings


@dataclass(frozen=True)
class Tried:
    """A model's first step.

    loss: of the step; None of a model that is fitted. step_s: of the step, with all that happens in a first one.
    together: whether several seeds can be trained in one process; None if the kind of the model says that. why: the reason
    why not, or why no step was taken.
    """

    loss: float | None = None
    step_s: float | None = None
    together: bool | None = None
    why: str = ""

    def __str__(self) -> str:
        if self.step_s is None:
            return f"not tried: {self.why}"
        did = "ended" if self.loss is None else f"loss {self.loss:.4g}"
        seeds = {True: "; seeds train together", False: f"; seeds train alone ({self.why})"}
        return f"{did} after {duration(self.step_s, 2)}{seeds.get(self.together, '')}"  # type: ignore[arg-type]


def key(content: Mapping[str, Any]) -> str:
    """What is tried of a run with these settings (`Settings.content`): one step says how all of them go.

    Another split of the same data is none of another kind. A model in a file is tried in each
    precision, with and without dropout, and on shared batches where ranks share them.
    """
    parts: dict[str, Any] = {part: content[part] for part in ("workload", "model", "simulator")}
    parts["workload"] = {name: value for name, value in parts["workload"].items() if name != "split_seed"}
    protocol = content["protocol"]
    if "code" in content["model"]:
        parts["how"] = content["run"]["ranks"] > 1, protocol["precision"], bool(protocol["dropout"])
    return grid.config_hash(parts)


def smallest(config: Config, workload: str) -> dict[str, Settings]:
    """For each model and simulator of the runs with a workload's data the smallest run, by `key`, with this split of them.

    Of a search its trials are tried.
    """
    by_key: dict[str, list[Settings]] = {}
    data = config.data(workload)
    runs = (replace(run, workload=workload) for run in config.runs if config.data(run.workload) == data)
    for settings in map(config.settings, dict.fromkeys(runs)):
        if settings.protocol.search is None:
            by_key.setdefault(key(settings.content), []).append(settings)

    def size(settings: Settings) -> Any:
        return sum(settings.sizes.values()), settings.run.batch, settings.run

    return {name: min(alike, key=size) for name, alike in by_key.items()}


def write(note: Path, features: str | None, trials: Mapping[str, Tried]) -> None:
    """Write the note: the hash of the prepared data, and what was tried by `key`."""
    content = {"features": features, "tried": {name: asdict(one) for name, one in trials.items()}}
    strict_json.write(note, content)


def covers(note: Path, settings: Settings, features: str | None) -> bool:
    """Whether a note says of a run, of these settings and prepared data, that its step was tried."""
    content = strict_json.of_note(note)
    return content.get("features") == features and key(settings.content) in content.get("tried", {})


def is_single(folder: Path, content: Mapping[str, Any]) -> bool:
    """Whether a run trains alone because no step has shown that its model stacks.

    folder: the run's. content: its settings (`Settings.content`).
    """
    if "code" not in content["model"]:
        return False
    results = Path(str(folder).rstrip("/").removesuffix(grid.Run.of(content["run"]).folder))
    notes = map(strict_json.of_note, results.glob(grid.TRIED.format(workload="*")))
    return not any(note.get("tried", {}).get(key(content), {}).get("together") for note in notes)
