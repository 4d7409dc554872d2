"""Points: runs of a study that differ only in their seed, and the choice of those that a median includes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from ketscale.analysis.heavy import pd
from ketscale.analysis.intervals import FEWEST
from ketscale.analysis.wording import where
from ketscale.config import Config, SizeAxis
from ketscale.config.metrics import LOSS
from ketscale.grid import BACKENDS, POINT, Run, decode, layout

# A row of runs.csv; the key that all rows of one point share, their values of `grid.POINT`; and these rows.
Row = Mapping[str, Any]
Point = tuple[Any, ...]
Group = Sequence[Row]
# The point of a row, and of a run.
point: Callable[[Row], Point] = itemgetter(*POINT)
point_of: Callable[[Run], Point] = attrgetter(*POINT)
# The columns that are equal for points that do the same work.
WORK = tuple(name for name in POINT if name not in ("simulator", "layout", "protocol"))

# Flags of a point, and of its ratios, with this after them if the other point has it. On a busy machine; some times on one,
# but within known bounds; no seed ended within the time of its protocol; a protocol that is not timed, whose runs share the
# machine; runs that are not comparable, so that they have no median.
BUSY, BOUNDED, TIMED_OUT, UNTIMED, MIXED = "busy", "bounded", "timed_out", "untimed", "mixed"
REFERENCE = " reference"
# Flags of a point whose own time is hollow in figures and excluded from fits, and of one whose ratios are hollow.
HOLLOW = (BUSY, TIMED_OUT)
HOLLOW_RATIOS = (*HOLLOW, *(flag + REFERENCE for flag in HOLLOW))


def worst(flags: Iterable[str]) -> str:
    """The flag of what has several: the first that is not `bounded`; '' without one."""
    found = [flag for flag in flags if flag]
    return next((flag for flag in found if not flag.startswith(BOUNDED)), found[0] if found else "")


def workers(text: str) -> int:
    """The number of workers of a layout: on GPUs the ranks (one GPU each), else ranks x threads."""
    parts = layout(text)
    return int(parts["ranks"] * (1 if BACKENDS[parts["backend"]].device == "gpu" else parts["threads"]))


def serial(backend: str) -> str:
    """The layout of one process with one thread, on the same device as a backend."""
    device = BACKENDS[backend].device
    return next(f"{b.name}-n1r1t1" for b in BACKENDS.values() if b.device == device and not b.several_ranks)


def usable(rows: Iterable[Row]) -> tuple[list[Row], str]:
    """The runs that a median includes, and a flag if they are not ideal.

    Diverged and out-of-memory runs are never included, and those that timed out only if no seed was completed. Three seeds that
    nothing disturbed are enough; with fewer, busy ones are included whose time alone has a known bound (`bounded`). Other busy
    runs are included only without another seed: then the point is flagged `timed_out` or `busy`, and in no fit.
    `untimed` flags protocols whose runs share the machine, also where all timed out.
    """
    measured = [row for row in rows if row["step_s"]]
    completed = [row for row in measured if row["status"] == "completed"]
    stopped = completed or [row for row in measured if row["status"] == "timed_out"]
    quiet = [
        row for row in stopped if row["quiet"] or (row["timed"] and row["least_step_s"] == row["step_s"])
    ]
    if completed and len(quiet) < FEWEST:
        bounded = [row for row in completed if row["quiet"] or (row["timed"] and row["least_step_s"])]
        if len(bounded) > len(quiet):
            return bounded, BOUNDED
    if stopped and not quiet:
        return stopped, BUSY
    if not all(row["timed"] for row in quiet):
        return quiet, UNTIMED
    return quiet, TIMED_OUT if quiet and not completed else ""


def median(values: Iterable[float | None]) -> float | None:
    """The median of the values that are known; None without one."""
    numbers = [value for value in values if value is not None]
    return statistics.median(numbers) if numbers else None


def failed(row: Row) -> bool:
    """Whether a run diverged or ran out of memory."""
    return row["status"] not in ("completed", "timed_out")


def mostly_failed(rows: Group) -> bool:
    """Whether more than half of a point's seeds failed, so that the rest are a choice."""
    return 2 * sum(map(failed, rows)) > len(rows)


def size_words(config: Config, workload: str, size: str) -> str:
    """A size in words, such as '4 qubits, 3 circuit layers'; empty for a classical model."""
    values = decode(config.family(workload).sizes, size)
    return ", ".join(axis_words(config, values, values))


def counted(value: float, axis: SizeAxis) -> str:
    """A size in words, such as '4 qubits' and '1 circuit layer'."""
    return f"{value:.0f} {axis.title.removesuffix('s') if value == 1 else axis.title}"


def variants(points: pd.DataFrame, config: Config, but: Iterable[str] = ()) -> pd.Series[str]:
    """What distinguishes some points, except the columns `but`: each point's values in words, empty if nothing varies.

    Where the model is among them, it stands for whatever every model has one value of.
    """
    # A classical model has the simulator none, which its name implies.
    frame = points.assign(simulator=points["simulator"].where(points["simulator"] != "none"))
    several = [name for name in axis_names(config) if frame[name].nunique() > 1]
    # A protocol that follows from all the others, such as fewer steps at a larger batch, distinguishes nothing.
    rest = [name for name in several if name != "protocol"]
    if rest and "protocol" in several and frame.groupby(rest, dropna=False)["protocol"].nunique().max() == 1:
        several = rest
    varied = [name for name in several if name not in {*but}]
    if "model" in varied:
        differing = frame.groupby("model")[varied].nunique().max() > 1
        varied = [name for name in varied if name == "model" or differing[name]]
    words = [", ".join(axis_words(config, row, varied)) for row in frame.to_dict("records")]
    return pd.Series(words, index=points.index, dtype=str)


def axis_words(config: Config, row: Mapping[Any, Any], names: Iterable[str]) -> list[str]:
    """The values that a row has of some axes, each in words."""
    axes = size_axes(config)
    # A classical model has no size, or 0.
    values = {name: row[name] for name in names if row[name] == row[name] and row[name] not in (None, 0)}
    return [
        counted(value, axes[name]) if name in axes
        else where(value) if name == "layout"
        else f"batch {value:,.0f}" if name == "batch"
        else str(value)
        for name, value in values.items()
    ]  # fmt: skip


def axis_names(config: Config) -> list[str]:
    """The axes of points, with each size axis in place of the size."""
    return [part for name in POINT for part in (size_axes(config) if name == "size" else [name])]


def size_axes(config: Config) -> dict[str, SizeAxis]:
    """The size axes of the families in the config's studies, by name. Each is a column, empty for other families."""
    return {axis.name: axis for name in config.studied for axis in config.family(name).sizes}


def axis_of(config: Config, run: Run, name: str) -> Any:
    """A run's value of an axis, of its layout or of a size; None if its family has no such size."""
    return getattr(run, name) if hasattr(run, name) else config.sizes(run).get(name)


def line_of(axis: str, row: Row, config: Config) -> tuple[Any, ...]:
    """What the points of a line along an axis share. A larger batch may need a larger model; then the two grow together."""
    tied = config.family(row["workload"]).work is not None
    grows = (axis, "protocol", *(["batch"] if tied else []))
    return tuple((name, row[name]) for name in axis_names(config) if name not in grows)


def metrics(config: Config) -> tuple[str, ...]:
    """The metrics of the families in the config's studies, the loss last. Each is a column."""
    names = [metric.name for name in config.studied for metric in config.family(name).metrics]
    return tuple(dict.fromkeys([*(name for name in names if name != LOSS), LOSS]))
