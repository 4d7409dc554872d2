"""Reads a user's own rows of features from arrays or from a CSV file."""

from __future__ import annotations

import csv
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ketscale.config import REGRESSION
from ketscale.errors import UserError, damaged, short, within
from ketscale.optional import needed_for
from ketscale.problems import arrays, own_samples
from ketscale.problems.arrays import Source
from ketscale.problems.columns import Column, of_columns
from ketscale.problems.own_data import Step
from ketscale.problems.samples import Samples
from ketscale.words import counted, suggestion

if TYPE_CHECKING:
    import pandas as pd

    from ketscale.problems.rows.specification import Rows, Table

ARRAYS = {"samples": ("features", "x"), "labels": ("targets", "labels", "y")}
# What a first config uses as the target, and not as a feature.
_TARGETS = ("target", "targets", "label", "labels", "class", "y")
_ROW_NUMBERS = ("id", "index", "row", "number", "nr", "no")
# Names of columns that may number the rows, and do if no two values are equal.
_OF_ROWS = re.compile(r"(?i:(.*[ _.:-])?(id|idx|index|row|number|nr|no)|unnamed.*)|.*[a-z]I[dD]")
# So many features are named.
_MOST_LISTED = 12
# Text of more different values, or of more than half as many as there are, has no categories.
_MOST_CATEGORIES = 20
# Numbers and dates as people write them, which pandas reads as text.
_NUMERAL = re.compile(r"[+-]?[0-9]+([., '\u2019][0-9]{3})*([.,][0-9]+)?")
_DATE = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}.*")


def from_arrays(workload: Rows, fetched: Path | None = None) -> Samples:
    """The rows of an .npz file.

    Raises:
        UserError: an array is missing or damaged, or has another shape or type; or there are too few rows.
    """
    there = own_samples.read(workload, ARRAYS)
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
    with within(path):
        there = {what: Source(_integers(table[name]), name) for what, name in roles.items() if name}
        if numeric:
            there["labels"] = Source(of_columns([Column(name) for name in targets], table), "target")
        if (name := workload.time_column) is not None:
            time = Column(name, date=table[name].dtype.kind not in "iuf")
            there["time"] = Source(time(table[name])[:, 0], name)
        comparable = np.hstack([column.comparable(table[column.name]) for column in columns])
        samples = own_samples.divided(workload, there, comparable, "row")
        training = table.iloc[samples.splits["train"]]
        fitted = tuple(column.fit(training[column.name], steps[column.name]) for column in columns)
        values = of_columns(fitted, table)
    return replace(samples, values=values, names=targets if numeric else samples.names, columns=fitted)


def read(path: Path) -> pd.DataFrame:
    """The rows of a CSV file as pandas reads them, below the names in its first line.

    Raises:
        UserError: the file is damaged, or a column has no name or that of another.
    """
    with needed_for("a CSV file", "workflow"):
        import pandas as pd

    with (
        damaged(f"{path}: is no table", "save it again as CSV in UTF-8"),
        warnings.catch_warnings(),
        open(path, encoding="utf-8-sig", newline="") as file,
    ):
        # pandas warns where it would drop columns without a name.
        warnings.simplefilter("error")
        separator = max(",;\t", key=file.readline().count)
        file.seek(0)
        head = next(csv.reader(file, delimiter=separator, skipinitialspace=True), [])
        names = [name.strip() for name in head]
        if len(names) < 2:
            raise UserError(
                f"{path}: has fewer than two columns; separate them by commas, semicolons or tabs"
            )
        if "" in names or len({*names}) < len(names):
            twice = next(name for name in names if not name or names.count(name) > 1)
            nameless = "a column has no name; give it one, or leave it out (pandas: index=False)"
            raise UserError(f"{path}: {f'two columns are called {twice}; rename one' if twice else nameless}")
        table = pd.read_csv(file, sep=separator, names=names, skipinitialspace=True, index_col=False)
    texts = {str(column): table[column].str.strip() for column in table if table[column].dtype == "str"}
    table = table.assign(**texts)
    if any(_is_value(name, table[name]) for name in names):
        line = short(", ".join(names))
        raise UserError(f"{path}: line 1 looks like the others ({line}); let the first line name the columns")
    return table


def features_of(workload: Table, names: Sequence[str]) -> list[str]:
    """The columns of these names that are features: those that no setting names.

    Raises:
        UserError: a setting names a column that is not there, or no column is left.
    """
    columns_of = {
        "columns": tuple(workload.columns or ()),
        "target": workload.target_columns,
        "split_column": (workload.split_column,),
        "groups_column": (workload.groups_column,),
        "time_column": (workload.time_column,),
        "ignore": workload.ignore,
    }
    for setting, columns in columns_of.items():
        for column in filter(None, columns):
            if column not in names:
                raise UserError(f"{setting}: the file has no column {column}{suggestion(column, names)}")
    used = {column for setting, columns in columns_of.items() if setting != "columns" for column in columns}
    features = [name for name in names if name not in used]
    for name in features:
        for setting, is_such in (
            ("split_column", own_samples.names_parts),
            ("groups_column", own_samples.names_groups),
        ):
            if is_such(name):
                raise UserError(
                    f"file: is column {name} a feature? Set {setting}: {name}, or ignore or rename it"
                )
    if not features:
        raise UserError("file: has no column but those that settings name; add features")
    return features


def draft(path: Path, targets: Sequence[str]) -> own_samples.Draft:
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
    parts = [name for name in others if own_samples.names_parts(name) or own_samples.are_parts(table[name])]
    groups = [name for name in others if own_samples.names_groups(name)]
    if len(groups) > 1:
        raise UserError(f"{path}: {' and '.join(groups)} may both be groups; remove or rename one")
    by_role = {"split_column": parts, "groups_column": groups}
    roles = {role: columns[0] for role, columns in by_role.items() if columns}
    others = [name for name in others if name not in roles.values()]
    if not targets:
        candidates = [name for name in others if name.lower() in _TARGETS]
        if not candidates and names[-1] in groups:
            raise UserError(
                f"{path}: the last column, {names[-1]}, may be what is to be predicted, or say which rows belong together; "
                f"name what is to be predicted (--target {names[-1]}, or another column)"
            )
        targets = [*candidates, *others[-1:]][:1]
    rows = table[list(targets)].dropna()
    numeric = len(targets) > 1 or own_samples.is_regression(rows.to_numpy())
    # Rows of one class follow each other, class by class.
    by_class = not numeric and 1 < len(rows.drop_duplicates()) == (rows != rows.shift()).to_numpy().sum()
    with within(path):
        steps = {name: _steps_of(table[name], by_class) for name in others if name not in targets}
    ignored = {name: why for name, why in steps.items() if isinstance(why, str)}
    usable = {name: step for name, step in steps.items() if not isinstance(step, str)}
    if not usable:
        unused = ", ".join(f"{name} ({why})" for name, why in ignored.items())
        raise UserError(f"{path}: has no column that is a feature: {unused or 'none is left'}; add features")
    columns = {name: step[0] if len(step) == 1 else list(step) for name, step in usable.items() if step}
    settings = {
        "file": str(path),
        "target": targets[0] if len(targets) == 1 else list(targets),
        "task": REGRESSION if numeric else None,
        **roles,
        "columns": columns,
        "ignore": list(ignored),
    }
    plain = [name for name in usable if name not in columns]
    listing = ", ".join([*plain[:_MOST_LISTED], *["..."] * (len(plain) > _MOST_LISTED)])
    notes = [
        f"target: {', '.join(targets)} ({REGRESSION if numeric else 'classification'})",
        *(f"{role}: {name}" for role, name in roles.items()),
        *([f"{counted(len(plain), 'feature')}: {listing}"] if plain else []),
        *(f"{name}: {_in_words(usable[name], table[name])}" for name in columns),
        *(f"ignored: {name} ({why})" for name, why in ignored.items()),
    ]
    return own_samples.Draft(
        {name: value for name, value in settings.items() if value},
        len(table),
        not parts or own_samples.has_validation(table[parts[0]]),
        tuple(" ".join(note.split()) for note in notes),  # a name may have several lines
    )


def _integers(column: pd.Series[Any]) -> NDArray[Any]:
    """The values of a column without gaps, numbers or text."""
    if (missing := column.isna()).any():
        raise UserError(f"row {int(missing.argmax()) + 1}, column {column.name}: is empty; leave the row out")
    return column.to_numpy(str if column.dtype.kind == "O" else None)


def _steps_of(column: pd.Series[Any], by_class: bool) -> tuple[Step, ...] | str:
    """The steps that make a column a feature, or why it is none.

    by_class: whether the rows are sorted by class; then whatever only rises or falls gives their classes away.

    Raises:
        UserError: most of its values are numbers, and others are not.
    """
    import pandas as pd

    name, filled, gaps = str(column.name), column.dropna(), bool(column.isna().any())
    if filled.empty:
        return "empty"
    numbers = pd.to_numeric(filled, errors="coerce").astype(float)
    fractions, numbered = bool((numbers.dropna() % 1).any()), "may number the rows"
    numbering = name.lower() in _ROW_NUMBERS or (_OF_ROWS.fullmatch(name) and filled.is_unique)
    if numbering and not fractions:
        return numbered
    kind: tuple[Step, ...] = ()
    if numbers.notna().mean() < 0.5:
        if pd.to_datetime(filled, format="ISO8601", utc=True, errors="coerce").notna().all():
            kind = ("date",)
        elif filled.astype(str).str.fullmatch(_DATE).all():
            return "dates, but not as 2024-01-31"
        elif filled.astype(str).str.fullmatch(_NUMERAL).all():
            return "numbers with a decimal comma or grouped digits; write them as 1234.5"
        elif (count := filled.nunique()) > min(_MOST_CATEGORIES, len(filled) // 2):
            return f"text of {count} different values"
        else:
            return ("most-frequent", "one-hot") if gaps else ("one-hot",)
    values = pd.Series(Column.of(name, kind).values(column)).dropna()
    ordered = values.is_unique and (values.is_monotonic_increasing or values.is_monotonic_decreasing)
    # As many different birthdays in so few days have a chance below 1e-3.
    rare = values.is_unique and len(values) ** 2 > 14 * (np.ptp(values) + 1)
    if not (fractions or kind) and (ordered or rare):
        return numbered
    if ordered and by_class:
        return "in the order of the rows, which are sorted by class"
    if not gaps:
        return kind
    return ("most-frequent" if values.isin((0, 1)).all() else "median", *kind)


def _in_words(steps: Sequence[Step], column: pd.Series[Any]) -> str:
    """What becomes of a column."""
    kind = (
        f"one-hot of {column.nunique()}" if "one-hot" in steps else "days" if "date" in steps else "feature"
    )
    gap = "median" if "median" in steps else "most frequent value"
    return f"{kind}, gaps by the {gap}" if column.isna().any() else kind


def _is_value(name: str, column: pd.Series[Any]) -> bool:
    """Whether the name of a column is a number such as those in it, so that it names nothing."""
    try:
        number = float(name)
    except ValueError:
        return False
    return math.isfinite(number) and (number % 1 != 0 or name in column.astype(str).to_numpy())
