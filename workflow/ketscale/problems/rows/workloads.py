"""The settings of the workloads of tables."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from ketscale.config import Draft, Positive, Seed, WithTargets
from ketscale.problems.datasets import REGRESSION
from ketscale.problems.own_data import (
    FeatureCount,
    File,
    Function,
    FunctionArguments,
    OwnArrays,
    OwnSamples,
    Share,
    SplitSeed,
    ValidationShare,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ketscale.problems.vectors.vectors import Vectors

Task = Annotated[
    Literal["classification", "regression"],
    Meta(description="classification: a class is predicted; regression: one number or several"),
]
Column = Annotated[str, Meta(min_length=1)]


class RowsWorkload(OwnSamples, WithTargets, frozen=True, kw_only=True):
    """Rows of features, and what is to be predicted of each."""

    # What reads the rows, as 'package.module:function', from the workload.
    loader: ClassVar[str] = ""

    split_seed: SplitSeed | None = None
    validation: ValidationShare | None = None
    test: Share | None = None

    @property
    def split(self) -> str:
        """Rows are drawn one by one, unless a kind says otherwise; see `OwnSamples`."""
        return "rows"

    @property
    def split_by(self) -> str:
        """How rows are split, for records: `rows`, `labels` (a share of each is drawn), `groups` or `given`."""
        drawn = "rows" if self.task == REGRESSION else "labels"
        return self.split if self.split in ("groups", "given") else drawn

    def load(self, fetched: Path | None) -> Vectors:
        """The rows with their split; nothing is fetched.

        Raises:
            UserError: the data are missing, damaged or do not fit.
        """
        found: Vectors = pkgutil.resolve_name(self.loader)(self)
        return found


class Rows(OwnArrays, RowsWorkload, frozen=True, kw_only=True):
    """A user's own rows of features, in an .npz file or in .npy files."""

    loader: ClassVar[str] = "ketscale.problems.rows.own:from_arrays"
    FILES: ClassVar[tuple[str, ...]] = ("file", "features", "targets", "groups")
    SAMPLES: ClassVar[tuple[str, ...]] = ("features",)
    DIMENSIONS: ClassVar[tuple[int, ...]] = (2,)
    TARGETS: ClassVar[str] = "targets"
    machine: ClassVar[frozenset[str]] = frozenset(FILES)

    task: Task = "classification"
    file: (
        Annotated[File, Meta(description="An .npz file with features or x, and targets, labels or y")] | None
    ) = None
    function: Function | None = None
    arguments: FunctionArguments = msgspec.field(default_factory=dict)
    feature_count: FeatureCount | None = None
    features: Annotated[File, Meta(description="An .npy file of features; needs targets")] | None = None
    targets: Annotated[File, Meta(description="An .npy file of labels, or of numbers")] | None = None
    groups: Annotated[File, Meta(description="An .npy file of groups, for split: groups")] | None = None
    split: Annotated[
        Literal["rows", "groups", "given"],
        Meta(
            description="rows: a share of each class, or of all rows, is drawn; groups: whole groups are drawn, each in "
            "one part only; given: the array split in the file gives the parts"
        ),
    ] = "rows"


class Table(RowsWorkload, frozen=True, kw_only=True):
    """A user's own table, in a CSV file with a header: every column is a feature unless a setting names it."""

    loader: ClassVar[str] = "ketscale.problems.rows.own:from_csv"
    FILES: ClassVar[tuple[str, ...]] = ("file",)
    machine: ClassVar[frozenset[str]] = frozenset(FILES)

    task: Task = "classification"
    file: Annotated[File, Meta(description="A CSV file whose first line names the columns")] | None = None
    target: Annotated[
        Column | Annotated[list[Column], Meta(min_length=1)],
        Meta(description="The column that is to be predicted; a regression may have a list of columns"),
    ]
    split_column: (
        Annotated[Column, Meta(description="The column that says in which part a row is: train, val or test")]
        | None
    ) = None
    groups_column: (
        Annotated[
            Column,
            Meta(
                description="The column that says which rows belong together, such as a person; each group is in one part "
                "only, unless split_column gives the parts"
            ),
        ]
        | None
    ) = None
    ignore: Annotated[
        tuple[Column, ...], Meta(description="Columns that are no features, such as a row's number")
    ] = ()

    @classmethod
    def draft(cls, path: Path, targets: Sequence[str]) -> Draft | None:
        """The settings of a CSV file."""
        if path.suffix.lower() not in (".csv", ".tsv"):
            return None
        found: Draft = pkgutil.resolve_name("ketscale.problems.rows.own:draft")(path, targets)
        return found

    @property
    def split(self) -> str:
        """How the rows are split; see `OwnSamples`."""
        return "given" if self.split_column else "groups" if self.groups_column else "rows"

    @property
    def target_columns(self) -> tuple[str, ...]:
        """The columns that are to be predicted."""
        return (self.target,) if isinstance(self.target, str) else tuple(self.target)

    def faults(self) -> Iterator[str]:
        """No column has two roles, and a class is in one column."""
        yield from super().faults()
        if self.task != REGRESSION and len(self.target_columns) > 1:
            yield "target: a class is in one column; name one, or set task: regression"
        named = [*self.target_columns, self.split_column, self.groups_column, *self.ignore]
        for name in dict.fromkeys(filter(None, named)):
            if named.count(name) > 1:
                yield f"target: column {name} is named twice; give each column one role"

    def count_features(self) -> int:
        """The columns that no setting names, from the file's first line."""
        found: int = pkgutil.resolve_name("ketscale.problems.rows.own:count_features")(self)
        return found

    def misplaced(self) -> Iterator[str]:
        """The file must be given."""
        yield from super().misplaced()
        if self.file is None:
            yield "file is missing (a CSV file whose first line names the columns)"


class SampleTable(RowsWorkload, frozen=True, kw_only=True):
    """A small real table that comes with scikit-learn."""

    loader: ClassVar[str] = "ketscale.problems.rows.samples:load"

    table: Annotated[
        Literal["breast-cancer", "diabetes", "iris", "wine"],
        Meta(description="The table; diabetes is a regression, the others are classifications"),
    ]
    split_seed: SplitSeed

    @property
    def task(self) -> str:
        """A regression for one of them; see `Workload.task`."""
        return REGRESSION if self.table == "diabetes" else ""


# 800 MB for each array of float64.
_MOST_NUMBERS = 10**8


class GeneratedRows(RowsWorkload, frozen=True, kw_only=True):
    """Rows of two classes that are generated, as Bowles, Ahmed & Schuld define them (arXiv:2403.07059)."""

    generated: ClassVar[bool] = True

    samples: Annotated[int, Meta(ge=20, description="How many rows there are")] = 300
    seed: Annotated[Seed, Meta(description="Seed of the rows, which all splits share")] = 0
    split_seed: SplitSeed

    @property
    def largest(self) -> int:
        """How many numbers are in the largest array that is made on the way."""
        return self.samples * self.count_features()

    def faults(self) -> Iterator[str]:
        """More than fits in memory."""
        yield from super().faults()
        if self.largest > _MOST_NUMBERS:
            yield f"its rows take arrays of {self.largest:,} numbers, and {_MOST_NUMBERS:,} is the most; make it smaller"


class _OfFeatures(GeneratedRows, frozen=True, kw_only=True):
    features: Annotated[Positive, Meta(description="How many features a row has")]

    def count_features(self) -> int:
        """As the settings say."""
        return self.features


class LinearlySeparable(_OfFeatures, frozen=True, kw_only=True):
    """Points of a cube on both sides of a plane through its centre."""

    loader: ClassVar[str] = "ketscale.problems.rows.generated:linearly_separable"

    margin: (
        Annotated[
            float,
            Meta(
                ge=0,
                description="Least absolute sum of a row's features; 0.02 times their number if left out",
            ),
        ]
        | None
    ) = None

    @property
    def least(self) -> float:
        """The least absolute sum of a row's features."""
        return 0.02 * self.features if self.margin is None else self.margin

    def faults(self) -> Iterator[str]:
        """Enough points of the cube must lie outside the margin; their sums have a deviation of 0.58 sqrt(features)."""
        yield from super().faults()
        most = 0.5 * self.features**0.5
        if self.least > most:
            yield f"margin: {self.least:g} leaves hardly a point of the cube; set it to {most:.3g} at most"


class HiddenManifold(_OfFeatures, frozen=True, kw_only=True):
    """Points of a low-dimensional manifold, whose classes a random network gives by their places on it."""

    loader: ClassVar[str] = "ketscale.problems.rows.generated:hidden_manifold"

    manifold: Annotated[Positive, Meta(description="Dimension of the manifold")] = 6

    @property
    def largest(self) -> int:
        """Rows, places on the manifold, or the weights that embed and class them."""
        return max(super().largest, max(self.samples, self.features, self.manifold) * self.manifold)


class TwoCurves(_OfFeatures, frozen=True, kw_only=True):
    """Points beside two copies of a curve, which are some way apart."""

    loader: ClassVar[str] = "ketscale.problems.rows.generated:two_curves"

    degree: Annotated[Positive, Meta(description="Degree of the curve's Fourier series")] = 5
    offset: Annotated[
        float, Meta(description="Difference of the second curve's coordinates from the first's")
    ] = 0.1
    noise: Annotated[float, Meta(ge=0, description="Standard deviation of the noise in each coordinate")] = (
        0.01
    )

    @property
    def largest(self) -> int:
        """Rows, their phases, or the coefficients."""
        return max(super().largest, max(self.samples, 2 * self.features) * (self.degree + 1))


class BarsAndStripes(GeneratedRows, frozen=True, kw_only=True):
    """Square pictures of vertical bars or of horizontal stripes, with noise; a pixel is a feature."""

    loader: ClassVar[str] = "ketscale.problems.rows.generated:bars_and_stripes"

    samples: Annotated[int, Meta(ge=20, description="How many pictures there are")] = 1200
    # A picture of one pixel is a bar and a stripe.
    width: Annotated[int, Meta(ge=2, le=1000, description="Pixels of a side")] = 4
    noise: Annotated[float, Meta(ge=0, description="Standard deviation of the noise in each pixel")] = 0.5

    def count_features(self) -> int:
        """The pixels."""
        return self.width**2
