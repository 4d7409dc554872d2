"""Reads a user's own rows of features from arrays or from a CSV file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ketscale.config import Draft
from ketscale.errors import UserError, short
from ketscale.files import opened, read_bytes
from ketscale.optional import needed_for
from ketscale.problems import arrays, own_samples, splits
from ketscale.problems.arrays import EXACT, Source
from ketscale.problems.datasets import REGRESSION
from ketscale.problems.labels import check_apart
from ketscale.problems.rows.workloads import RowsWorkload
from ketscale.problems.vectors.vectors import Vectors
from ketscale.words import counted, suggestion

if TYPE_CHECKING:
    import pandas as pd

    from ketscale.problems.rows.workloads import Rows, Table

WANTED = {"samples": ("features", "x"), "labels": ("targets", "labels", "y")}
_SEPARATORS = (b",", b";", b"\t")
_TRUTH = {"true": 1.0, "false": 0.0}
# What a first config takes for the target, and for no feature.
_TARGETS = ("target", "targets", "label", "labels", "class", "y")
_ROW_NUMBERS = ("id", "index", "row", "number", "nr", "no")
# Names of what may tell the rows apart, and does if no two are equal.
_OF_ROWS = re.compile(r"(?i:(.*[ _.:-])?(id|idx|index|row|number|nr|no)|unnamed.*)|.*[a-z]I[dD]")
_DATE = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}.*")
# Whole numbers that chance leaves without equal ones less often than this number the rows.
_BY_CHANCE = 1e-3
# So many features are named.
_SHOWN = 12
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
# A number with a decimal comma, or with its digits in groups, and what to do about it.
_NUMERAL = re.compile(r"[+-]?[0-9]+([., '\u2019][0-9]{3})*([.,][0-9]+)?")
_PLAIN = "write a decimal point, and no digit groups (pandas: read_csv(..., decimal=',', thousands='.'))"


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
        UserError: the file is damaged, a column is missing, or a value is no number; names row and column.
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

    Columns of text, and those that only number the rows, are under `ignore`, and the notes say why.

    Raises:
        UserError: as for `from_csv`; or no column has that name, or the last one may be a target or say what belongs
            together, or none is a feature.
    """
    table = _Table.read(path)
    for name in targets:
        if name not in table.names:
            raise UserError(f"--target: {path} has no column {name}{suggestion(name, table.names)}")
    others = [name for name in table.names if name not in targets]
    roles = {}
    for role, is_such in (
        ("split_column", table.holds_parts),
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
    numeric = len(targets) > 1 or table.is_regression(targets[0])
    by_class = not numeric and _in_blocks(table.texts[targets[0]])
    why = {name: table.no_feature(name, by_class) for name in others if name not in targets}
    numbers, ignored = ([name for name in why if bool(why[name]) == out] for out in (False, True))
    unused = ", ".join(f"{name} ({why[name]})" for name in ignored)
    shown = ", ".join([*numbers[:_SHOWN], *["..."] * (len(numbers) > _SHOWN)])
    if not numbers:
        raise UserError(f"{path}: has no column that is a feature: {unused or 'none is left'}; add features")
    chosen = {
        "file": str(path),
        "target": targets[0] if len(targets) == 1 else list(targets),
        "task": REGRESSION if numeric else None,
        **roles,
        "ignore": ignored,
    }
    parts = table.text(roles["split_column"]).values if "split_column" in roles else None
    notes = [
        f"target: {', '.join(targets)} ({REGRESSION if numeric else 'classification'})",
        *(f"{role}: {name}" for role, name in roles.items()),
        f"{counted(len(numbers), 'feature')}: {shown}",
    ]
    if unused:
        remedy = "to use one, take it out of `ignore`, and write what is no number as numbers"
        notes.append(f"ignored: {unused}; {remedy}")
    return Draft(
        {name: value for name, value in chosen.items() if value},
        len(table.texts),
        parts is None or own_samples.has_validation(parts),
        tuple(" ".join(note.split()) for note in notes),  # a name may have several lines
    )


def count_features(workload: Table) -> int:
    """The columns of a CSV file that are features, from its first line.

    Raises:
        UserError: as for `from_csv`, of that line.
    """
    (path,) = workload.sources()
    return len(features_of(workload, _Table.read(path, rows=0).names))


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
    """A CSV file: the texts in its columns, without the spaces around them."""

    path: Path
    texts: pd.DataFrame

    @classmethod
    def read(cls, path: Path, rows: int | None = None) -> _Table:
        """The first rows of a file, or all.

        Raises:
            UserError: the file is damaged, or a column has no name or that of another.
        """
        with needed_for("a CSV file", "workflow"):
            import pandas as pd

        with opened(path) as file:
            separator = max(_SEPARATORS, key=file.readline().count).decode()
            file.seek(0)
            try:
                # As texts, since pandas takes words such as NA for missing numbers.
                cells = pd.read_csv(
                    file, sep=separator, header=None, nrows=None if rows is None else rows + 1, dtype=str, na_filter=False,
                    encoding="utf-8-sig",
                ).apply(lambda column: column.str.strip())  # fmt: skip
            except UnicodeDecodeError:
                raise UserError(
                    f"{path}: line {_undecodable(path)} is not UTF-8; save the table in UTF-8"
                ) from None
            except ValueError as error:  # pandas's own errors are such
                raise UserError(f"{path}: is no table ({short(error)}); save it again as CSV") from None
        names, below = cells.iloc[0].tolist(), cells.iloc[1:]
        if len(names) == 1:
            raise UserError(
                f"{path}: has one column, {short(names[0])}; separate columns by commas, semicolons or tabs, and add features"
            )
        for place, name in enumerate(names):
            if not name:
                raise UserError(
                    f"{path}: column {place + 1} has no name; give it one, or save the table without it "
                    "(pandas: index=False)"
                )
            if names.index(name) < place:
                raise UserError(f"{path}: two columns are called {short(name)}; rename one")
        again = bool((below == names).any(axis=None)) and any(math.isfinite(_number(name)) for name in names)
        if again or any(map(_is_fraction, names)):
            raise UserError(
                f"{path}: line 1 looks like the others ({short(', '.join(names))}); let the first line name the columns"
            )
        if below.empty and rows is None:
            raise UserError(f"{path}: has no rows below the columns' names; add them")
        return cls(path, below.set_axis(names, axis=1))

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [str(name) for name in self.texts]

    def numbers(self, names: Sequence[str]) -> Source:
        """The columns of these names, float64 (rows, columns); true and false are 1 and 0.

        Raises:
            UserError: a value is no finite number, or a whole one that double precision rounds.
        """
        texts = self.texts[list(names)].to_numpy()
        found = np.vectorize(_number, otypes=[np.float64])(texts)
        # What is no number is not below either.
        for row, column in np.argwhere(~(np.abs(found) <= EXACT)):
            text, number = texts[row, column], found[row, column]
            other = "or name the column under ignore"
            if not math.isfinite(number):
                comma = math.isnan(number) and _NUMERAL.fullmatch(text)
                remedy = _PLAIN if comma else f"write one, leave the row out, {other}"
                fault = f"{short(repr(text))} is no finite number; {remedy}"
            elif text.lstrip("+-").isdecimal() and int(text) != int(number):
                fault = f"{short(text)} is so large that double precision rounds it; write it in another unit, {other}"
            else:
                continue
            raise UserError(f"{self._at(row, names[column])}: {fault}")
        return Source(found, f"{self.path}: {', '.join(names)}")

    def holds_parts(self, name: str) -> bool:
        """Whether a column says in which part a row is, by its name or its values."""
        return own_samples.names_parts(name) or own_samples.are_parts(self.texts[name].tolist())

    def no_feature(self, name: str, by_class: bool) -> str:
        """Why a column is no feature: it has no numbers, or those of the rows, maybe with gaps or in another order; '' if it is one.

        by_class: whether the rows are sorted by class; then whatever only rises or falls gives their classes away.

        Raises:
            UserError: some of its values are finite numbers and others are not.
        """
        column, numbered = self.texts[name], "may number the rows"
        fractions = any(map(_is_fraction, column))
        named = name.lower() in _ROW_NUMBERS or (_OF_ROWS.fullmatch(name) and column.is_unique)
        if named and not fractions:
            return numbered
        if not any(map(_looks_like_number, column)):
            return "dates" if all(map(_DATE.match, column)) else "text"
        values = self.numbers([name]).values[:, 0]
        ordered = bool((np.diff(values) > 0).all() or (np.diff(values) < 0).all())
        if (values != np.floor(values)).any():
            return "in the order of the rows, which are sorted by class" if ordered and by_class else ""
        # As rare as n different birthdays in so many days.
        alone = len(np.unique(values)) == len(values)
        rare = alone and math.exp(-(len(values) ** 2) / (2 * (np.ptp(values) + 1))) < _BY_CHANCE
        return numbered if ordered or rare else ""

    def is_regression(self, name: str) -> bool:
        """Whether a column looks like numbers that are to be predicted; see `own_samples.is_regression`.

        Raises:
            UserError: some of its values are fractions and others no finite numbers.
        """
        column = self.texts[name]
        numeric = any(map(_is_fraction, column)) or all(map(_looks_like_number, column))
        return numeric and own_samples.is_regression(self.numbers([name]).values)

    def text(self, name: str) -> Source:
        """The column of this name, as text, or as whole numbers if it has nothing else.

        Raises:
            UserError: a value is empty, or two look like one that is written in two ways.
        """
        values, where = self.texts[name].tolist(), f"{self.path}: {name}"
        if "" in values:
            raise UserError(
                f"{self._at(values.index(''), name)} is empty; write a value, or leave the row out"
            )
        if all(map(_WHOLE.fullmatch, values)):
            return Source(np.array(values).astype(np.int64), where)
        # Here, since rows of a table are counted from 1, and those of an array from 0.
        rows: dict[str, str] = {}
        for row, value in enumerate(values, 1):
            rows.setdefault(value, f"row {row}")
        check_apart({row: value for value, row in rows.items()}, where)
        return Source(np.array(values), where)

    def _at(self, row: int, name: str) -> str:
        return f"{self.path}: row {row + 1}, column {short(name)}"


def _undecodable(path: Path) -> int:
    """The number of the first line that is not UTF-8."""
    content = read_bytes(path)
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return content.count(b"\n", 0, error.start) + 1
    return 1


def _in_blocks(column: pd.Series[str]) -> bool:
    """Whether rows of one class follow each other, class by class."""
    return 1 < column.nunique() == int((column != column.shift()).sum())


def _is_fraction(text: str) -> bool:
    number = _number(text)
    return math.isfinite(number) and number % 1 != 0


def _looks_like_number(text: str) -> bool:
    """Whether a text is a number, maybe not a finite one, or would be one with a decimal point."""
    return not math.isnan(_number(text)) or _NUMERAL.fullmatch(text) is not None


def _number(text: str) -> float:
    """A number, or NaN if the text is none. Python's digit groups, as in 1_000, are no number here."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return _TRUTH.get(text.lower(), math.nan)
