"""The settings of the workload `sentences`. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from ketscale.config import Count, Seed, Settings, Workload
from ketscale.errors import UserError


class SentencesWorkload(Workload, frozen=True, kw_only=True):
    """Eight built-in sentences, or those of a text file, for a model that predicts the next word."""

    machine: ClassVar[frozenset[str]] = frozenset({"file"})

    file: (
        Annotated[
            str,
            Meta(
                description="Text file in UTF-8, one sentence on each line; without it the built-in sentences"
            ),
        ]
        | None
    ) = None
    seed: Annotated[Seed, Meta(description="Seed of the words' vectors")]
    held_out: Annotated[
        Count,
        Meta(
            description="Sentences for validation, and the same number for the test; 0 if nothing is evaluated"
        ),
    ]
    split_seed: Annotated[Seed, Meta(description="Seed of the split")]

    def sources(self) -> list[Path]:
        """The text file, if one is given."""
        if self.file is None:
            return []
        file = Path(self.file).expanduser()
        if not file.is_file():
            raise UserError(
                f"file: there is no file {file}; name another, or leave file out for the built-in sentences"
            )
        return [file]

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """A protocol with epochs validates, which needs held-out sentences."""
        run = settings.run
        if self.held_out == 0 and settings.protocol.by_epochs:
            yield (
                f"protocol {run.protocol} has epochs, which are validated, but workload {run.workload} holds out no "
                "sentences; set held_out to 1 or more, or give the protocol steps"
            )
