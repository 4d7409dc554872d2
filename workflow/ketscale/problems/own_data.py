"""The settings that workloads of a user's own files share, and their checks.

Imports nothing heavy, since configs are checked with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from ketscale.config import REGRESSION, Seed
from ketscale.errors import UserError

SHARE = 0.15
_SHARE = f"Share of each class, or of the groups, in this part; default {SHARE}"
Share = Annotated[float, Meta(gt=0, lt=1, description=_SHARE)]
ValidationShare = Annotated[float, Meta(ge=0, lt=1, description=f"{_SHARE}; 0 for none")]
File = Annotated[str, Meta(min_length=1)]
SplitSeed = Annotated[Seed, Meta(description="Seed of the train/validation/test split")]
# What makes a feature of a column of a table.
Step = Literal["one-hot", "date", "median", "most-frequent"]


class OwnSamples:
    """A workload of samples that are drawn one by one, by groups, by time, or as their file says; a mixin of its settings.

    split: 'groups', 'time', 'given', or another word for one by one.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # annotations here would replace the workload's
        validation: float | None
        test: float | None
        split_seed: int | None

        @property
        def split(self) -> str: ...

        @property
        def task(self) -> str: ...

    @property
    def shares(self) -> dict[str, float]:
        """The given shares of validation and test, or their defaults."""
        shares = {"validation": self.validation, "test": self.test}
        return {name: SHARE if share is None else share for name, share in shares.items()}

    @property
    def split_by(self) -> str:
        """How samples are split, for records: `rows`, `labels` (a share of each is drawn), `groups`, `time` or `given`."""
        by = "rows" if self.task == REGRESSION else "labels"
        return self.split if self.split in ("groups", "time", "given") else by

    def faults(self) -> Iterator[str]:
        """Shares must leave samples to train on, and are not given with a split of the file's own."""
        yield from super().faults()  # type: ignore[misc]
        if (total := sum(self.shares.values())) >= 1:
            yield f"validation: validation and test add up to {total:g}, so none is left to train on"
        unused = {"given": ("validation", "test", "split_seed", "folds"), "time": ("split_seed", "folds")}
        for name in unused.get(self.split, ()):
            if getattr(self, name, None) is not None:
                yield f"{name}: the file gives the parts; leave it out"


class OwnFile(OwnSamples):
    """A workload of one file of a user's own."""

    __slots__ = ()

    if TYPE_CHECKING:
        file: str | None

    @property
    def path(self) -> Path:
        """The file.

        Raises:
            UserError: there is none.
        """
        path = Path(self.file or "").expanduser()
        if not path.is_file():
            raise UserError(f"file: there is no file {path}; name another")
        return path

    def sources(self) -> list[Path]:
        """The file, where the settings say where it is; raises as `path`."""
        return [self.path] if self.file else []

    def misplaced(self) -> Iterator[str]:
        """The file must be given."""
        yield from super().misplaced()  # type: ignore[misc]
        if self.file is None:
            yield "file is missing (docs/own-data.md says what it has); add it"


class OwnArrays(OwnFile):
    """A workload of the arrays in an .npz file."""

    __slots__ = ()
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({"function": None, "arguments": {}})
