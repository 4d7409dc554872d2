"""The settings that workloads of a user's own files share, and their checks.

Imports nothing heavy, since configs are checked with it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from ketscale.config import Draft, OwnCode, Positive, Seed
from ketscale.errors import UserError
from ketscale.files import expanded

SHARE = 0.15
_SHARE = f"Share of each class, or of the groups, in this part; default {SHARE}"
Share = Annotated[float, Meta(gt=0, lt=1, description=_SHARE)]
ValidationShare = Annotated[float, Meta(ge=0, lt=1, description=f"{_SHARE}; 0 for none")]
File = Annotated[str, Meta(min_length=1)]
Function = Annotated[
    str,
    Meta(
        min_length=1,
        description="If the file is one of Python: the function in it that returns a dict of the arrays of an .npz file",
    ),
]
FunctionArguments = Annotated[dict[str, Any], Meta(description="What the function is called with, by name")]
FeatureCount = Annotated[
    Positive, Meta(description="How many features the function returns, for sizes that follow the data")
]
SplitSeed = Annotated[Seed, Meta(description="Seed of the train/validation/test split")]


class OwnFiles:
    """A workload of a user's own files, with shares of validation and test; a mixin of its settings.

    FILES: the settings that name a file.
    """

    __slots__ = ()
    FILES: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:  # annotations here would replace the workload's
        validation: float | None
        test: float | None

    @property
    def shares(self) -> dict[str, float]:
        """The given shares of validation and test, or their defaults."""
        given = {"validation": self.validation, "test": self.test}
        return {name: SHARE if share is None else share for name, share in given.items()}

    def sources(self) -> list[Path]:
        """The files that are given, in the order of `FILES`.

        Raises:
            UserError: there is no such file.
        """
        return list(self.given_files().values())

    def given_files(self) -> dict[str, Path]:
        """`sources` by the settings that name them."""
        given = {name: getattr(self, name) for name in self.FILES}
        return {name: _found(path, name) for name, path in given.items() if path is not None}

    def share_faults(self, instead: str | None = None, **more: int | None) -> Iterator[str]:
        """Yield what is wrong with the shares.

        instead: the reason why nothing is drawn, so that no share, nor what else is given as `more`, may be set; None
        if they are drawn.
        """
        given = {"validation": self.validation, "test": self.test}
        for name, setting in {**given, **more}.items():
            if instead and setting is not None:
                yield f"{name}: {instead}; leave it out"
        total = sum(self.shares.values())
        if total >= 1:
            yield f"validation: validation and test add up to {total:g}, so none is left to train on"


class OwnSamples(OwnFiles):
    """A workload of samples that are drawn one by one, by groups, or as their file says.

    split: 'groups', 'given', or another word for one by one.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        split_seed: int | None

        @property
        def split(self) -> str: ...

        @property
        def task(self) -> str: ...

    def faults(self) -> Iterator[str]:
        """Shares must leave samples to train on, and are not given with a split of the file's own."""
        yield from super().faults()  # type: ignore[misc]
        given = "the file gives the parts" if self.split == "given" else None
        yield from self.share_faults(given, split_seed=self.split_seed)


class OwnArrays(OwnSamples):
    """A workload of arrays: an .npz file, what a function in a Python file returns, or .npy files of samples and of what is
    to be predicted.

    SAMPLES: the settings that name an .npy file of samples. TARGETS: the setting that names the other. DIMENSIONS: how
    many dimensions arrays of the first of `SAMPLES` have.
    """

    __slots__ = ()
    SAMPLES: ClassVar[tuple[str, ...]] = ()
    TARGETS: ClassVar[str] = "labels"
    DIMENSIONS: ClassVar[tuple[int, ...]] = ()

    if TYPE_CHECKING:
        file: str | None
        function: str | None
        arguments: dict[str, Any]
        feature_count: int | None

    @classmethod
    def draft(cls, path: Path, targets: Sequence[str]) -> Draft | None:
        """The settings of an .npz file that has such samples and what is to be predicted."""
        if targets or path.suffix != ".npz":
            return None
        draft = pkgutil.resolve_name("ketscale.problems.own_samples:draft")
        found: Draft | None = draft(path, (cls.SAMPLES[0], "x"), cls.DIMENSIONS, cls.TARGETS == "targets")
        return found

    @property
    def own_code(self) -> bool:
        """Whether a function of the user's makes the arrays."""
        return self.function is not None

    def faults(self) -> Iterator[str]:
        """Only a function is called with something, and is asked how many features there are."""
        yield from super().faults()
        for name in ("arguments", "feature_count"):
            if self.function is None and getattr(self, name, None):
                yield f"{name}: is for a function in a file of Python; name it (function), or leave it out"

    def sources(self) -> list[Path]:
        """The files that are given; of a function also what its file imports from beside it.

        Raises:
            UserError: there is no such file, or it is not Python.
        """
        return list(map(Path, self.code().paths.values())) if self.function else super().sources()

    def code(self) -> OwnCode:
        """The code of the function, which is read and not run; raises as `sources`."""
        assert self.file is not None and self.function is not None
        return OwnCode.read(self.file)

    def count_features(self) -> int:
        """The columns of the features, from the head of their file, or as the settings say of a function."""
        if "features" not in self.FILES:
            return super().count_features()  # type: ignore[misc]
        if self.function is not None:
            if self.feature_count is None:
                raise UserError(
                    "feature_count is missing (how many features the function returns); add it, or give a number"
                )
            return self.feature_count
        files = self.given_files()
        count: int = _columns(files.get("file") or files["features"]) if files else super().count_features()  # type: ignore[misc]
        return count

    def misplaced(self) -> Iterator[str]:
        """There must be one source of samples, with all that it needs and nothing else."""
        yield from super().misplaced()  # type: ignore[misc]
        sources = ("file", *self.SAMPLES)
        given = [name for name in sources if getattr(self, name) is not None]
        if len(given) != 1:
            known = f"{', '.join(sources[:-1])} and {sources[-1]}"
            yield f"give one of {known}, not {' and '.join(given) or 'none'}"
        elif (self.function is None) == str(self.file).endswith(".py"):
            yield (
                "function: needs a Python file (.py) as file"
                if self.function
                else "file: is one of Python; name the function in it that returns the arrays (function: NAME)"
            )
        elif given == ["file"]:
            for name in self.FILES:
                if name != "file" and getattr(self, name) is not None:
                    yield f"{name}: the file has them; leave it out"
        else:
            if getattr(self, self.TARGETS) is None:
                yield f"{given[0]}: needs {self.TARGETS}, another .npy file"
            groups = getattr(self, "groups", None)
            if "groups" in self.FILES and (self.split == "groups") != (groups is not None):
                verb = "needs" if self.split == "groups" else "does not use"
                yield f"groups: split: {self.split} {verb} such a file"
            if self.split == "given":
                yield "split: given is an array in an .npz file; give that as file, or choose another split"


def _columns(path: Path) -> int:
    """The columns of the features in an .npy or .npz file; their values stay unread.

    Raises:
        UserError: the file is damaged, or has no features.
    """
    from ketscale.problems import arrays

    found = arrays.shapes(path)
    shape = next((found[name] for name in ("", "features", "x") if name in found), None)
    if shape is None:
        raise UserError(f"{path}: has no array called features or x; save it under that name")
    if len(shape) != 2:
        raise UserError(f"{path}: shape {shape} is not that of features, (samples, features)")
    return shape[1]


def _found(given: str, setting: str) -> Path:
    path = expanded(given)
    if not path.is_file():
        if path.exists():
            raise UserError(f"{setting}: {path} is not a regular file; name another")
        raise UserError(f"{setting}: there is no file {path}; name another")
    return path
