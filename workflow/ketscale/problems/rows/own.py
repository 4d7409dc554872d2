"""Reads a user's own rows of features from arrays or from a CSV file."""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ketscale.config import REGRESSION, Draft
from ketscale.errors import UserError, damaged, short
from ketscale.optional import needed_for
from ketscale.problems import arrays, own_samples
from ketscale.problems.arrays import Source
from ketscale.problems.columns import Column, of_columns
from ketscale.problems.leaks import leaks, told
from ketscale.problems.own_data import Step
from ketscale.problems.rows.workloads import RowsWorkload
from ketscale.problems.samples import Samples
from ketscale.words import counted, suggestion

if TYPE_CHECKING:
    import pandas as pd

    from ketscale.problems.rows.workloads import Rows, Table

WANTED = {"samples": ("features", "x"), "labels": ("targets", "labels", "y")}
_SEPARATORS = (b",", b";", b"\t")
# What a first config takes for the target, and for no feature.
_TARGETS = ("target", "targets", "label", "labels", "class", "y")
_ROW_NUMBERS = ("id", "index", "row", "number", "nr", "no")
# Names of what may tell the rows apart, and does if no two are equal.
_OF_ROWS = re.compile(r"(?i:(.*[ _.:-])?(id|idx|index|row|number|nr|no)|unnamed.*)|.*[a-z]I[dD]")
# Whole numbers that chance leaves without equal ones less often than this number the rows.
_BY_CHANCE = 1e-3
# So many features are named.
_SHOWN = 12
# Text of more different values, or of more than half as many as there are, has no categories.
_MOST_CATEGORIES = 20
# A number with a decimal comma, or with its digits in groups; a date that is not as in ISO 8601.
_NUMERAL = re.compile(r"[+-]?[0-9]+([., '\u2019][0-9]{3})*([.,][0-9]+)?")
_DATE = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}.*")


def from_arrays(workload: Rows, fetched: Path | None = None) -> Samples:
    """The rows of an .npz file.

    Raises:
        UserError: an array is missing or damaged, or has another shape or type; or there are too few rows.
    """
    there = own_samples.read(workload, WANTED)
    values, where = there["samples"]
    if values.ndim != 2 or not values.size:
        raise UserError(f"{where}: shape {values.shape} is not that of features, (rows, features)")
    return own_samples.divided(workload, there, arrays.real(values, where).astype(np.float64), "row")


def from_csv(workload: Table, fetched: Path | None = None) -> Samples:
    """The rows of a CSV file in UTF-8, with commas, semicolons or tabs between its columns.

    Raises:
        UserError: the file is damaged, a column is missing, or a value is not as it must be; names row and column.
    """
    path = workload.path
    table = read(path)
    numeric, targets = workload.task == REGRESSION, workload.target_columns
    roles = {"labels": targets[0], "split": workload.split_column, "groups": workload.groups_column}
    steps = {name: workload.steps(name) for name in features_of(workload, list(map(str, table)))}
    columns = [Column.of(name, steps[name]) for name in steps]
    with _of_file(path):
        there = {what: Source(_whole(table[name]), f"{path}: {name}") for what, name in roles.items() if name}
        if numeric:
            there["labels"] = Source(of_columns([Column(name) for name in targets], table), f"{path}: target")
        if (name := workload.time_column) is not None:
            time = Column(name, date=table[name].dtype.kind not in "iuf")
            there["time"] = Source(time(table[name])[:, 0], f"{path}: {name}")
        comparable = np.hstack([column.comparable(table[column.name]) for column in columns])
    found = own_samples.divided(workload, there, comparable, "row")
    training = table.iloc[found.splits["train"]]
    with _of_file(path):
        fitted = tuple(column.fit(training[column.name], steps[column.name]) for column in columns)
        values = of_columns(fitted, table)
    return replace(found, values=values, names=targets if numeric else found.names, columns=fitted)


def read(path: Path) -> pd.DataFrame:
    """The rows of a CSV file as pandas reads them.

    Raises:
        UserError: the file is damaged, or a column has no name or that of another.
    """
    with needed_for("a CSV file", "workflow"):
        import pandas as pd

    with (
        damaged(f"{path}: is no table", "save it again as CSV in UTF-8"),
        warnings.catch_warnings(),
        open(path, "rb") as file,
    ):
        # pandas warns where it would leave out what is below no name.
        warnings.simplefilter("error")
        separator = max(_SEPARATORS, key=file.readline().count).decode()
        how: Any = {"sep": separator, "encoding": "utf-8-sig", "skipinitialspace": True, "index_col": False}
        file.seek(0)
        head = pd.read_csv(file, header=None, nrows=1, dtype=str, **how).iloc[0]
        file.seek(0)
        table = pd.read_csv(file, **how)
    names = [name.strip() if isinstance(name, str) else "" for name in head]
    fault = ""
    if len(names) < 2:
        fault = "has one column; separate columns by commas, semicolons or tabs, and add features"
    elif "" in names:
        fault = f"column {names.index('') + 1} has no name; give it one, or save the table without it (pandas: index=False)"
    elif len({*names}) < len(names):
        fault = f"two columns are called {next(name for name in names if names.count(name) > 1)}; rename one"
    elif any(
        name in table[column].astype(str).to_numpy() or _is_fraction(name)
        for name, column in zip(names, table, strict=True)
        if _is_number(name)
    ):
        fault = (
            f"line 1 looks like the others ({short(', '.join(names))}); let the first line name the columns"
        )
    if fault:
        raise UserError(f"{path}: {fault}")
    texts = {column: table[column].str.strip() for column in table if table[column].dtype == "str"}
    return table.assign(**texts).set_axis(names, axis=1)


def features_of(workload: Table, names: Sequence[str]) -> list[str]:
    """The columns of these names that are features: those that no setting names.

    Raises:
        UserError: a setting names a column that is not there, or no column is left.
    """
    named = {
        "target": workload.target_columns,
        "split_column": (workload.split_column,),
        "groups_column": (workload.groups_column,),
        "time_column": (workload.time_column,),
        "ignore": workload.ignore,
    }
    for name in workload.columns or ():
        if name not in names:
            raise UserError(f"columns: the file has no column {name}{suggestion(name, names)}")
    used = set()
    for setting, columns in named.items():
        for column in filter(None, columns):
            if column not in names:
                raise UserError(f"{setting}: the file has no column {column}{suggestion(column, names)}")
            used.add(column)
    features = [name for name in names if name not in used]
    for name in features:
        for setting, is_such, does in (
            ("split_column", own_samples.names_parts, "say in which part a row is"),
            ("groups_column", own_samples.names_groups, "say which rows belong together"),
        ):
            if is_such(name):
                raise UserError(
                    f"file: column {name} seems to {does}: set {setting}: {name}, or put it under ignore, or rename it"
                )
    if not features:
        raise UserError("file: has no column but those that settings name; add features")
    return features


def draft(path: Path, targets: Sequence[str]) -> Draft:
    """The settings of a CSV file in a first config: the target is the named column, one that is called so, or the last.

    Text becomes categories, dates numbers of days, and gaps the median or the most frequent value. Columns that only number
    the rows, and text of many values, are under `ignore`. The notes say what became of each column.

    Raises:
        UserError: as for `from_csv`; or no column has that name, or the last one may be a target or say what belongs
            together, or none is a feature.
    """
    table = read(path)
    names = list(map(str, table))
    for name in targets:
        if name not in names:
            raise UserError(f"--target: {path} has no column {name}{suggestion(name, names)}")
    others = [name for name in names if name not in targets]
    roles = {}
    for role, is_such in (
        ("split_column", lambda name: own_samples.names_parts(name) or own_samples.are_parts(table[name])),
        ("groups_column", own_samples.names_groups),
    ):
        found = next(filter(is_such, others), None)
        if found is not None:
            roles[role] = found
    groups = [name for name in others if own_samples.names_groups(name)]
    if len(groups) > 1:
        raise UserError(
            f"{path}: {' and '.join(groups)} may each say which rows belong together; keep the one whose rows must stay "
            "together, such as those of a person, and remove or rename the other"
        )
    named = [name for name in others if name.lower() in _TARGETS]
    if not targets and not named and roles.get("groups_column") == others[-1]:
        raise UserError(
            f"{path}: the last column, {others[-1]}, may be what is to be predicted, or say which rows belong together; "
            f"name what is to be predicted (--target {others[-1]}, or another column)"
        )
    others = [name for name in others if name not in roles.values()]
    if not targets and not others:
        raise UserError(
            f"{path}: has only columns that say parts or groups; add features and what is to be predicted"
        )
    targets = targets or [next(iter(named), others[-1])]
    known = table[targets[0]].dropna()
    numeric = len(targets) > 1 or own_samples.is_regression(known.to_numpy())
    # Rows of one class follow each other, class by class.
    by_class = not numeric and 1 < known.nunique() == int((known != known.shift()).sum())
    with _of_file(path):
        asked = {name: _asked(table[name], by_class) for name in others if name not in targets}
    ignored = {name: why for name, why in asked.items() if isinstance(why, str)}
    steps = {name: step for name, step in asked.items() if not isinstance(step, str)}
    if not steps:
        unused = ", ".join(f"{name} ({why})" for name, why in ignored.items())
        raise UserError(f"{path}: has no column that is a feature: {unused or 'none is left'}; add features")
    columns = {name: step[0] if len(step) == 1 else list(step) for name, step in steps.items() if step}
    chosen = {
        "file": str(path),
        "target": targets[0] if len(targets) == 1 else list(targets),
        "task": REGRESSION if numeric else None,
        **roles,
        "columns": columns,
        "ignore": list(ignored),
    }
    plain = [name for name in steps if name not in columns]
    shown = ", ".join([*plain[:_SHOWN], *["..."] * (len(plain) > _SHOWN)])
    notes = [
        f"target: {', '.join(targets)} ({REGRESSION if numeric else 'classification'})",
        *(f"{role}: {name}" for role, name in roles.items()),
        *([f"{counted(len(plain), 'feature')}: {shown}"] if plain else []),
        *(f"{name}: {_in_words(steps[name], table[name])}" for name in columns),
        *(f"ignored: {name} ({why})" for name, why in ignored.items()),
    ]
    return Draft(
        {name: value for name, value in chosen.items() if value},
        len(table),
        "split_column" not in roles or own_samples.has_validation(table[roles["split_column"]]),
        tuple(" ".join(note.split()) for note in notes),  # a name may have several lines
    )


def with_leaks(draft: Draft, workload: RowsWorkload) -> Draft:
    """A draft that notes possible leaks, if the data of the workload that it is of can be read."""
    with contextlib.suppress(UserError):
        if said := told(leaks(workload.load(None))):
            return draft._replace(notes=(*draft.notes, said))
    return draft


@contextlib.contextmanager
def _of_file(path: Path) -> Iterator[None]:
    """Let an error name the file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _whole(column: pd.Series[Any]) -> NDArray[Any]:
    """The values of a column of which none may be missing, numbers or text."""
    if (missing := column.isna()).any():
        raise UserError(
            f"row {int(missing.argmax()) + 1}, column {column.name}: is empty; write a value, or leave the row out"
        )
    return column.to_numpy(str if column.dtype.kind == "O" else None)


def _asked(column: pd.Series[Any], by_class: bool) -> tuple[Step, ...] | str:
    """The steps that make a column a feature, or why it is none: it numbers the rows, maybe in another order, or is free text.

    by_class: whether the rows are sorted by class; then whatever only rises or falls gives their classes away.

    Raises:
        UserError: most of its values are numbers, and others are not.
    """
    import pandas as pd

    name, known, gaps = str(column.name), column.dropna(), bool(column.isna().any())
    if known.empty:
        return "empty"
    numbers = pd.to_numeric(known, errors="coerce")
    fractions, numbered = bool((numbers.dropna() % 1 != 0).any()), "may number the rows"
    named = name.lower() in _ROW_NUMBERS or (_OF_ROWS.fullmatch(name) and column.is_unique)
    if named and not fractions:
        return numbered
    steps: tuple[Step, ...] = ()
    if numbers.isna().any():
        if pd.to_datetime(known, format="ISO8601", utc=True, errors="coerce").notna().all():
            steps = ("date",)
        elif all(map(_DATE.match, known)):
            return "dates, but not as 2024-01-31"
        elif numbers.notna().mean() < 0.5 and not all(map(_NUMERAL.fullmatch, known)):
            count = known.nunique()
            if count > min(_MOST_CATEGORIES, len(known) // 2):
                return f"text of {count} different values"
            return ("most-frequent", "one-hot") if gaps else ("one-hot",)
    if not steps and known.astype(str).str.fullmatch(r"[+-]?\d+,\d+").mean() > 0.5:
        return "numbers with a decimal comma; write a point"
    found = Column.of(name, steps).values(column)
    values = found[~np.isnan(found)]
    ordered = bool((np.diff(values) > 0).all() or (np.diff(values) < 0).all())
    if (fractions or steps) and ordered and by_class:
        return "in the order of the rows, which are sorted by class"
    # As rare as n different birthdays in so many days.
    alone = len(np.unique(values)) == len(values)
    rare = alone and math.exp(-(len(values) ** 2) / (2 * (np.ptp(values) + 1))) < _BY_CHANCE
    if not fractions and not steps and (ordered or rare):
        return numbered
    if not gaps:
        return steps
    return ("most-frequent" if np.isin(values, (0, 1)).all() else "median", *steps)


def _in_words(steps: Sequence[Step], column: pd.Series[Any]) -> str:
    """What becomes of a column."""
    kind = (
        f"one-hot of {column.nunique()}" if "one-hot" in steps else "days" if "date" in steps else "feature"
    )
    gap = "median" if "median" in steps else "most frequent value"
    return f"{kind}, gaps by the {gap}" if column.isna().any() else kind


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_fraction(text: str) -> bool:
    return float(text) % 1 != 0
