"""The settings of the workload of a user's own trials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from ketscale.config import Draft
from ketscale.problems.eeg.workloads import SeriesWorkload
from ketscale.problems.own_data import File, Function, FunctionArguments, OwnArrays, Share, ValidationShare


class OwnSeries(OwnArrays, SeriesWorkload, frozen=True, kw_only=True):
    """A user's own trials, in an .npz file or in .npy files."""

    loader: ClassVar[str] = "ketscale.problems.eeg.own:load"
    FILES: ClassVar[tuple[str, ...]] = ("file", "signals", "labels", "groups")
    SAMPLES: ClassVar[tuple[str, ...]] = ("signals",)
    DIMENSIONS: ClassVar[tuple[int, ...]] = (3,)
    machine: ClassVar[frozenset[str]] = frozenset(FILES)

    file: (
        Annotated[
            File,
            Meta(description="An .npz file with signals or x (trials x channels x steps), and labels or y"),
        ]
        | None
    ) = None
    function: Function | None = None
    arguments: FunctionArguments = msgspec.field(default_factory=dict)
    signals: (
        Annotated[File, Meta(description="An .npy file of signals (trials x channels x steps); needs labels")]
        | None
    ) = None
    labels: Annotated[File, Meta(description="An .npy file of labels")] | None = None
    groups: Annotated[File, Meta(description="An .npy file of groups, for split: groups")] | None = None
    split: Annotated[
        Literal["trials", "groups", "given"],
        Meta(
            description="trials: a share of each class is drawn; groups: whole groups are drawn (such as subjects), "
            "each in one part only; given: the array split in the file gives the parts"
        ),
    ]
    validation: ValidationShare | None = None
    test: Share | None = None
    standardise: Annotated[
        bool,
        Meta(
            description="Give each channel of a trial mean 0 and standard deviation 1; a constant channel becomes 0"
        ),
    ] = False

    @classmethod
    def draft(cls, path: Path, targets: Sequence[str]) -> Draft | None:
        """The settings of an .npz file of trials."""
        found = super().draft(path, targets)
        return found and found._replace(settings={"split": "trials", **found.settings})
