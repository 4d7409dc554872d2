"""A model in a user's own file: its block in a config, and the settings that follow from it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import Meta

from ketscale.config.block import Name, Text
from ketscale.config.family import Model
from ketscale.config.own_code import OwnCode
from ketscale.config.parsing import parse
from ketscale.errors import UserError, short, within
from ketscale.files import sha256
from ketscale.grid import canonical

# What a constructor gets from the run, besides sizes, if it names them.
_OF_RUN = ("simulator", "dropout", "inputs", "outputs", "seed")


class FileBlock(Model, frozen=True, kw_only=True):
    """A torch.nn.Module in a file of your own. Its constructor gets all other settings of the block, as they are."""

    # fmt: off
    file: Annotated[str, Meta(min_length=1, description="The Python file, relative to where Snakemake runs")]
    class_: Annotated[str, Meta(min_length=1, description="The class in it")] = msgspec.field(name="class")
    control: Annotated[Name | None, Meta(description="The model, or kind of models, that it is compared "  # type: ignore[misc]  # models of the package have it in common
        "with")] = None
    reads: Annotated[list[Text] | None, Meta(description="What else it reads: files, relative to where Snakemake runs, "
        "and variables of the environment, as $SCALE. When the content of one changes, runs are trained again")] = None
    # fmt: on


class FileModel(FileBlock, frozen=True, kw_only=True):
    """The settings of such a model; what its constructor takes is known where it runs (`problems.models`).

    settings: the block's others. code: the hash of the file and of its local imports (`OwnCode.hash`). reads:
    SHA-256 of each other file and variable that it reads.
    """

    stacks: ClassVar[bool | None] = None
    has_dropout: ClassVar[bool] = True
    own_code: ClassVar[bool] = True

    settings: dict[str, Any]
    code: str
    reads: dict[str, str] = msgspec.field(default_factory=dict)  # type: ignore[assignment]  # in a block they are names

    @classmethod
    def of_block(cls, block: Mapping[str, Any], where: str, sizes: Collection[str]) -> Self:
        """The settings of the block at `where`, whose file is read, and not run.

        sizes: the names of all sizes of models.

        Raises:
            UserError: the file cannot be read, or a setting is one that the run gives, or none that JSON can say.
        """
        about = {key: value for key, value in block.items() if key in ("file", "class", "control", "reads")}
        free = {key: value for key, value in block.items() if key not in ("kind", *about)}
        head = parse(FileBlock, about, where)
        with within(where):
            code = OwnCode.read(head.file).hash
            reads = {name: content_hash(name) for name in head.reads or ()}
        for name, value in free.items():
            if name in (*_OF_RUN, *sizes):
                raise UserError(f"{where}.{name}: the run gives it; leave it out")
            try:
                canonical({name: value})
            except (TypeError, ValueError) as error:  # JSON cannot say it, such as a date
                raise UserError(
                    f"{where}.{name}: {value!r} cannot be a setting ({short(error)}); write it as a text"
                ) from None
        return cls(**{**msgspec.structs.asdict(head), "settings": free, "code": code, "reads": reads})

    def content(self) -> dict[str, Any]:
        """As `Block.content`; a model without `reads` has the hash that it had before there were any."""
        return {name: value for name, value in super().content().items() if name != "reads" or value}

    def changed(self, settings: Mapping[str, Any], where: str) -> Self:
        """The model with other values of some settings of its constructor; see `Model`."""
        for name in set(_OF_RUN) & set(settings):
            raise UserError(f"{where}.{name}: the run gives it; leave it out")
        return msgspec.structs.replace(self, settings={**self.settings, **settings})


def content_hash(name: str) -> str:
    """SHA-256 of the content of a file, or of a variable ($NAME), as `reads` names it; 'unset' or 'missing' without one.

    Raises:
        UserError: the file cannot be read.
    """
    if name.startswith("$"):
        value = os.environ.get(name[1:])
        return "unset" if value is None else hashlib.sha256(os.fsencode(value)).hexdigest()
    try:
        return sha256(Path(name).expanduser())
    except FileNotFoundError:
        # The code may do without it; once it is there, the settings are others.
        return "missing"
    except OSError as error:
        raise UserError(
            f"{name} (reads) cannot be read in {Path.cwd()} ({error.strerror}); name another"
        ) from None
