"""The family `rows`: tables of features, and models that predict a class or numbers of each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from ketscale.config import METRICS, REGRESSION, Family, FileModel, Positive, Seed, WithTargets, lazily
from ketscale.config.circuits import CIRCUIT_SIZES, CircuitSimulator
from ketscale.problems.datasets import build
from ketscale.problems.own_data import (
    File,
    OwnArrays,
    OwnFile,
    OwnSamples,
    Share,
    SplitSeed,
    Step,
    ValidationShare,
)
from ketscale.problems.vectors.settings import MODELS

Task = Annotated[Literal["classification", "regression"], Meta(description="classification: a class is predicted; "
    "regression: one number or several")]  # fmt: skip
Column = Annotated[str, Meta(min_length=1)]
# Steps that exclude each other.
_EXCLUSIVE = ({"one-hot", "date"}, {"median", "most-frequent"}, {"median", "one-hot"})


class RowsWorkload(OwnSamples, WithTargets, frozen=True, kw_only=True):
    """Rows of features, and what is to be predicted of each."""

    later: ClassVar[frozenset[str]] = frozenset({"folds"})

    split_seed: SplitSeed | None = None
    validation: ValidationShare | None = None
    test: Share | None = None
    # fmt: off
    folds: Annotated[int, Meta(ge=2, description="Instead of test: the test is one of so many equal parts of each class, "
        "of all rows or of the groups, another one for each of so many split_seeds in a row, such as 0 to 4")] | None = None
    # fmt: on

    def faults(self) -> Iterator[str]:
        """Folds say how large the test is."""
        yield from super().faults()
        if self.folds and self.test:
            yield "test: folds say how large it is; leave it out"

    @property
    def split(self) -> str:
        """Rows are drawn one by one, unless a kind says otherwise; see `OwnSamples`."""
        return "rows"


class Rows(OwnArrays, RowsWorkload, frozen=True, kw_only=True):
    """A user's own rows of features, in an .npz file."""

    loader: ClassVar[str] = "ketscale.problems.rows.own:from_arrays"
    machine: ClassVar[frozenset[str]] = frozenset({"file"})
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({**OwnArrays.former, "feature_count": None})

    task: Task = "classification"
    # fmt: off
    file: Annotated[File, Meta(description="An .npz file with features or x, and targets, labels or y")] | None = None
    split: Annotated[Literal["rows", "groups", "given"], Meta(description="rows: a share of each class, or of all "
        "rows, is drawn; groups: whole groups are drawn, each in one part only; given: the array split in the file "
        "gives the parts")] = "rows"
    # fmt: on


class Table(OwnFile, RowsWorkload, frozen=True, kw_only=True):
    """A user's own table, in a CSV file with a header: every column is a feature unless a setting names it."""

    loader: ClassVar[str] = "ketscale.problems.rows.own:from_csv"
    machine: ClassVar[frozenset[str]] = frozenset({"file"})
    later: ClassVar[frozenset[str]] = frozenset({"folds", "columns", "time_column"})

    task: Task = "classification"
    file: Annotated[File, Meta(description="A CSV file whose first line names the columns")] | None = None
    # fmt: off
    target: Annotated[Column | Annotated[list[Column], Meta(min_length=1)], Meta(description="The column that is "
        "to be predicted; a regression may have a list of columns")]
    split_column: Annotated[Column, Meta(description="The column that says in which part a row is: train, val or "
        "test")] | None = None
    groups_column: Annotated[Column, Meta(description="The column that says which rows belong together, such as a "
        "person; each group is in one part only, unless split_column gives the parts")] | None = None
    time_column: Annotated[Column, Meta(description="The column of dates or numbers by which rows are split: the "
        "earliest are trained on, the latest are the test")] | None = None
    columns: Annotated[dict[Column, Step | tuple[Step, ...]], Meta(description="What makes a feature of a column "
        "that is no number without gaps: one-hot (a feature for each category), date (its days), median or "
        "most-frequent (of the training samples, for what is missing); or a list of two")] | None = None
    # fmt: on
    ignore: Annotated[
        tuple[Column, ...], Meta(description="Columns that are no features, such as a row's number")
    ] = ()

    @property
    def split(self) -> str:
        """How the rows are split; see `OwnSamples`."""
        columns = {"given": self.split_column, "groups": self.groups_column, "time": self.time_column}
        return next((how for how, column in columns.items() if column), "rows")

    @property
    def target_columns(self) -> tuple[str, ...]:
        """The columns that are to be predicted."""
        return (self.target,) if isinstance(self.target, str) else tuple(self.target)

    def steps(self, column: str) -> tuple[Step, ...]:
        """What makes a column a feature."""
        steps = (self.columns or {}).get(column, ())
        return (steps,) if isinstance(steps, str) else steps

    def faults(self) -> Iterator[str]:
        """No column has two roles, and a class is in one column."""
        yield from super().faults()
        for name in self.columns or ():
            steps = self.steps(name)
            if not steps or len({*steps}) < len(steps) or any(pair <= {*steps} for pair in _EXCLUSIVE):
                yield f"columns.{name}: {', '.join(steps)} exclude each other; give one, or a filler and one-hot or date"
        if self.task != REGRESSION and len(self.target_columns) > 1:
            yield "target: a class is in one column; name one, or set task: regression"
        if self.time_column and self.split != "time":
            yield "time_column: another column gives the split; leave one of them out"
        roles = (self.split_column, self.groups_column, self.time_column)
        all_names = [*self.target_columns, *roles, *self.ignore, *(self.columns or ())]
        for name in dict.fromkeys(filter(None, all_names)):
            if all_names.count(name) > 1:
                yield f"target: column {name} is named twice; give each column one role"


class SampleTable(RowsWorkload, frozen=True, kw_only=True):
    """A small real table that comes with scikit-learn."""

    loader: ClassVar[str] = "ketscale.problems.rows.generated:sample_table"

    table: Annotated[Literal["breast-cancer", "diabetes", "iris", "wine"], Meta(description="The table; diabetes "
        "is a regression, the others are classifications")]  # fmt: skip
    split_seed: SplitSeed

    @property
    def task(self) -> str:
        """A regression for one of them; see `Workload.task`."""
        return REGRESSION if self.table == "diabetes" else ""


class GeneratedRows(RowsWorkload, frozen=True, kw_only=True):
    """Rows of two classes that are generated, as Bowles, Ahmed & Schuld define them (arXiv:2403.07059)."""

    generated: ClassVar[bool] = True

    samples: Annotated[int, Meta(ge=20, description="How many rows there are")] = 300
    seed: Annotated[Seed, Meta(description="Seed of the rows, which all splits share")] = 0
    split_seed: SplitSeed


class _OfFeatures(GeneratedRows, frozen=True, kw_only=True):
    # With more, hardly a point of a cube is outside the margin of separable ones.
    features: Annotated[int, Meta(ge=1, le=2500, description="How many features a row has")]


class LinearlySeparable(_OfFeatures, frozen=True, kw_only=True):
    """Points of a cube on both sides of a plane through its centre."""

    loader: ClassVar[str] = "ketscale.problems.rows.generated:linearly_separable"

    former: ClassVar[Mapping[str, Any]] = MappingProxyType({"margin": None})


class HiddenManifold(_OfFeatures, frozen=True, kw_only=True):
    """Points of a low-dimensional manifold, whose classes a random network gives by their places on it."""

    loader: ClassVar[str] = "ketscale.problems.rows.generated:hidden_manifold"

    manifold: Annotated[Positive, Meta(description="Dimension of the manifold")] = 6


class TwoCurves(_OfFeatures, frozen=True, kw_only=True):
    """Points near two copies of a curve, at a distance from each other."""

    loader: ClassVar[str] = "ketscale.problems.rows.generated:two_curves"
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({"degree": 5, "offset": 0.1, "noise": 0.01})


class BarsAndStripes(GeneratedRows, frozen=True, kw_only=True):
    """Square pictures of vertical bars or of horizontal stripes, with noise; a pixel is a feature."""

    loader: ClassVar[str] = "ketscale.problems.rows.generated:bars_and_stripes"
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({"noise": 0.5})

    samples: Annotated[int, Meta(ge=20, description="How many pictures there are")] = 1200
    # A picture of one pixel is a bar and a stripe.
    width: Annotated[int, Meta(ge=2, le=1000, description="Pixels of a side")] = 4

    @property
    def features(self) -> int:
        """The pixels."""
        return self.width**2


FAMILY = Family(
    name="rows",
    title="tables",
    samples="rows",
    sizes=CIRCUIT_SIZES,
    sampler="shuffled",
    workloads={
        "table": Table,
        "rows": Rows,
        "sample-table": SampleTable,
        "linearly-separable": LinearlySeparable,
        "hidden-manifold": HiddenManifold,
        "two-curves": TwoCurves,
        "bars-and-stripes": BarsAndStripes,
    },
    models=MODELS,
    simulators=(CircuitSimulator,),
    metrics=METRICS["classes"],
    build=build,
    own=FileModel,
    prepare=lazily("ketscale.problems.vectors.prepared:prepare"),
    read=lazily("ketscale.problems.vectors.prepared:read"),
)
