"""Reads a user's own rows of features from arrays or from a CSV file."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ketscale.config import Draft, suggestion
from ketscale.errors import UserError, short
from ketscale.files import opened, read_bytes
from ketscale.problems import arrays, own_samples, splits
from ketscale.problems.own_data import REGRESSION
from ketscale.problems.own_samples import Source
from ketscale.problems.vectors.vectors import Vectors

if TYPE_CHECKING:
    from ketscale.problems.rows.workloads import Rows, RowsWorkload, Table

WANTED = {"samples": ("features", "x"), "labels": ("targets", "labels", "y")}
_SEPARATORS = (",", ";", "\t")
_TRUTH = {"true": 1.0, "false": 0.0}
# What a first config takes for the target, and for no feature.
_TARGETS = ("target", "targets", "label", "labels", "class", "y")
_ROW_NUMBERS = ("id", "index", "row", "number", "nr", "no")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def from_arrays(workload: Rows) -> Vectors:
    """The rows of an .npz file, or of .npy files.

    Raises:
        UserError: an array is missing or damaged, or has another shape or type; or there are too few rows.
    """
    there = own_samples.read(workload, WANTED)
    values, where = there["samples"]
    if values.ndim != 2 or not values.size:
        raise UserError(f"{where}: shape {values.shape} is not that of features, (rows, features)")
    return divided(workload, arrays.real(values, where).astype(np.float64), there)


def from_csv(workload: Table) -> Vectors:
    """The rows of a CSV file in UTF-8, with commas, semicolons or tabs between its columns.

    Raises:
        UserError: the file is damaged, a column is missing, or a value is no number; names line and column.
    """
    (path,) = workload.sources()
    table = _Table.read(path)
    features = features_of(workload, table.names)
    numeric, targets = workload.task == REGRESSION, workload.target_columns
    there = {"labels": table.numbers(targets) if numeric else table.text(targets[0])}
    for what, column in (("split", workload.split_column), ("groups", workload.groups_column)):
        if column is not None:
            there[what] = table.text(column)
    found = divided(workload, table.numbers(features).values, there)
    return replace(found, names=targets) if numeric else found


def features_of(workload: Table, names: Sequence[str]) -> list[str]:
    """The columns of these names that are features: those that no setting names.

    Raises:
        UserError: a setting names a column that is not there, or no column is left.
    """
    named = {
        "target": workload.target_columns,
        "split_column": (workload.split_column,),
        "groups_column": (workload.groups_column,),
        "ignore": workload.ignore,
    }
    used = set()
    for setting, columns in named.items():
        for name in columns:
            if name is not None and name not in names:
                raise UserError(f"{setting}: the file has no column {name}{suggestion(name, names)}")
            used.add(name)
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

    Columns that are no numbers, or only number the rows, are under `ignore`.

    Raises:
        UserError: as for `from_csv`; or no column has that name.
    """
    table = _Table.read(path)
    for name in targets:
        if name not in table.names:
            raise UserError(f"--target: {path} has no column {name}{suggestion(name, table.names)}")
    others = [name for name in table.names if name not in targets]
    roles = {}
    for role, is_such in (
        ("split_column", own_samples.names_parts),
        ("groups_column", own_samples.names_groups),
    ):
        found = next(filter(is_such, others), None)
        if found is not None:
            roles[role] = found
    others = [name for name in others if name not in roles.values()]
    if not targets and others:
        targets = [next((name for name in others if name.lower() in _TARGETS), others[-1])]
    numbers = [name for name in others if name.lower() not in _ROW_NUMBERS and table.holds_numbers(name)]
    ignored = [name for name in others if name not in (*targets, *numbers)]
    numeric = len(targets) > 1 or (
        table.holds_numbers(targets[0]) and own_samples.is_regression(table.numbers(targets).values)
    )
    chosen = {
        "file": str(path),
        "target": targets[0] if len(targets) == 1 else list(targets),
        "task": REGRESSION if numeric else None,
        **roles,
        "ignore": ignored,
    }
    parts = table.text(roles["split_column"]).values if "split_column" in roles else None
    return Draft(
        {name: value for name, value in chosen.items() if value},
        len(table.rows),
        parts is None or own_samples.has_validation(parts),
    )


def count_features(workload: Table) -> int:
    """The columns of a CSV file that are features, from its first line.

    Raises:
        UserError: as for `from_csv`, of that line.
    """
    (path,) = workload.sources()
    with opened(path) as file:
        return len(features_of(workload, _parsed(path, file.readline())[0][1]))


def divided(workload: RowsWorkload, values: NDArray[np.float64], there: dict[str, Source]) -> Vectors:
    """The rows with these features, (n, features), and their targets and split, from the arrays that `read` gives."""
    found = own_samples.divided(
        workload, there, len(values), "row", lambda: splits.first_equal_features(values)
    )
    return Vectors(
        values=values, targets=found.targets, names=found.names, splits=found.parts, marks=found.marks
    )


@dataclass(frozen=True)
class _Table:
    """A CSV file: the columns' names, and of each row its line in the file and its fields."""

    path: Path
    names: list[str]
    lines: list[int]
    rows: list[list[str]]

    @classmethod
    def read(cls, path: Path) -> _Table:
        found = _parsed(path, read_bytes(path))
        if len(found) < 2:
            raise UserError(f"{path}: has no rows below a line with the columns' names; add them")
        names = found[0][1]
        for line, row in found[1:]:
            if len(row) != len(names):
                raise UserError(
                    f"{path}: line {line} has {len(row)} values, but there are {len(names)} columns; mend it"
                )
        return cls(path, names, [line for line, _ in found[1:]], [row for _, row in found[1:]])

    def numbers(self, names: Sequence[str]) -> Source:
        """The columns of these names, float64 (rows, columns); true and false are 1 and 0.

        Raises:
            UserError: a value is no finite number.
        """
        places = [self.names.index(name) for name in names]
        values = [[_number(row[place]) for place in places] for row in self.rows]
        found = np.array(values)
        wrong = np.argwhere(~np.isfinite(found))
        if len(wrong):
            row, column = wrong[0]
            given = self.rows[row][places[column]]
            raise UserError(
                f"{self.path}: line {self.lines[row]}, column {short(names[column])}: {short(repr(given))} is no finite number; "
                "write one, leave the row out, or name the column under ignore"
            )
        return Source(found, f"{self.path}: {', '.join(names)}")

    def holds_numbers(self, name: str) -> bool:
        """Whether every value of a column is a finite number."""
        place = self.names.index(name)
        return all(math.isfinite(_number(row[place])) for row in self.rows)

    def text(self, name: str) -> Source:
        """The column of this name, as text, or as whole numbers if it has nothing else.

        Raises:
            UserError: a value is empty.
        """
        place = self.names.index(name)
        values = [row[place].strip() for row in self.rows]
        if "" in values:
            line = self.lines[values.index("")]
            raise UserError(
                f"{self.path}: line {line}, column {short(name)} is empty; write a value, or leave the row out"
            )
        whole = all(map(_WHOLE.fullmatch, values))
        return Source(
            np.array(values).astype(np.int64) if whole else np.array(values), f"{self.path}: {name}"
        )


def _number(text: str) -> float:
    """A number, or NaN if the text is none. Python's digit groups, as in 1_000, are no number here."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return _TRUTH.get(text.strip().lower(), math.nan)


def _parsed(path: Path, data: bytes) -> list[tuple[int, list[str]]]:
    """The lines of a CSV file with their numbers, without empty ones; the first has the columns' names."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; save the table in UTF-8") from None
    separator = max(_SEPARATORS, key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        found = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise UserError(f"{path}: line {reader.line_num} is no CSV ({error}); save it again") from None
    if not found:
        raise UserError(f"{path}: is empty; its first line should name the columns")
    names = found[0][1][:] = [name.strip() for name in found[0][1]]
    for place, name in enumerate(names):
        if not name:
            raise UserError(
                f"{path}: column {place + 1} has no name; give it one, or save the table without it "
                "(pandas: to_csv(index=False))"
            )
        if names.index(name) < place:
            raise UserError(f"{path}: two columns are called {short(name)}; rename one")
    return found
