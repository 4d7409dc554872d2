"""How a column of a table becomes features: pandas determines what a number, a text and a gap is."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError, short

if TYPE_CHECKING:
    import pandas as pd

    from ketscale.problems.own_data import Step


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a column of a table becomes one feature, or one for each category.

    name: the column's. date: its values are dates, which become numbers of days since 1970. categories: those of the training
    part, in order; None if its values are numbers. gap: what replaces a missing value; None if none may be missing.
    """

    name: str
    date: bool = False
    categories: tuple[str, ...] | None = None
    gap: float | str | None = None

    @classmethod
    def of(cls, name: str, steps: Collection[Step] = ()) -> Column:
        """A column that is not fitted yet."""
        return cls(name, "date" in steps, () if "one-hot" in steps else None)

    def fit(self, column: pd.Series[Any], steps: Collection[Step] = ()) -> Column:
        """The column as its training samples, of which one at least has a value, say."""
        values = self.values(column.dropna())
        if not len(values):
            raise UserError(f"column {self.name}: no training sample has a value; put it under ignore")
        different, counts = np.unique(values, return_counts=True)
        gap = None
        if "median" in steps:
            gap = float(np.median(values))
        elif "most-frequent" in steps:
            gap = different.tolist()[counts.argmax()]
        categories = None if self.categories is None else tuple(different.tolist())
        return msgspec.structs.replace(self, categories=categories, gap=gap)

    def comparable(self, column: pd.Series[Any]) -> NDArray[np.float64]:
        """Numbers (n, 1), or (n, 2) where values are missing, which are equal for equal values."""
        import pandas as pd

        values, missing = self.values(column), column.isna().to_numpy()
        numbers = pd.factorize(values)[0] if self.categories is not None else np.where(missing, 0, values)
        return np.stack([numbers, missing] if missing.any() else [numbers], 1).astype(np.float64)

    def values(self, column: pd.Series[Any]) -> NDArray[Any]:
        """Its numbers, or texts, (n,): NaN and None where a value is missing.

        Raises:
            UserError: a value is no number or no date; names its row, counted from 1.
        """
        import pandas as pd

        there = column.notna().to_numpy()
        if self.categories is not None:
            return np.array(
                [_text(value) if known else None for value, known in zip(column, there, strict=True)], object
            )
        if self.date:
            times = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
            numbers = (times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
        else:
            # Text such as 1_000 is no number to pandas.
            numbers = pd.to_numeric(column, errors="coerce")
        result = numbers.to_numpy(np.float64, na_value=np.nan, copy=True)
        if (wrong := there & ~np.isfinite(result)).any():
            row = int(wrong.argmax())
            what = "a date such as 2024-01-31" if self.date else "a finite number"
            raise UserError(
                f"row {row + 1}, column {self.name}: {short(repr(str(column.iloc[row])))} is not {what}; write it so, put the column "
                f"under ignore, or ask for its categories, columns: {{{self.name}: one-hot}}"
            )
        return result

    def __call__(self, column: pd.Series[Any]) -> NDArray[np.float64]:
        """Its features (n, 1), or (n, categories), where a category that training has not is 0 in all.

        Raises:
            UserError: as for `values`, or a value is missing and nothing replaces it.
        """
        values, missing = self.values(column), column.isna().to_numpy()
        if missing.any():
            if self.gap is None:
                fill = "[most-frequent, one-hot]" if self.categories else "median"
                raise UserError(
                    f"row {int(missing.argmax()) + 1}, column {self.name}: is empty; drop the row, or say what replaces "
                    f"it, columns: {{{self.name}: {fill}}}"
                )
            values[missing] = self.gap
        if self.categories is None:
            return values[:, None]
        return (values[:, None] == np.array(self.categories, object)).astype(np.float64)


def _text(value: Any) -> str:
    """A category; whole numbers are alike whether a gap made pandas read them as floats or not."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def of_columns(columns: Collection[Column], table: pd.DataFrame) -> NDArray[np.float64]:
    """The features (n, features) of the columns of a table.

    Raises:
        UserError: a column is missing, or as for `Column`.
    """
    missing = [column.name for column in columns if column.name not in table]
    if missing:
        raise UserError(f"there is no column {missing[0]}; it has {short(', '.join(map(str, table)))}")
    return np.hstack([column(table[column.name]) for column in columns])
