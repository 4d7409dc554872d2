"""A user's own code: a file with the modules that it imports from its folder, and the model in it. It is read, never run.

What it imports is looked for in the file's own folder, and then in the working directory, which is the config's. The
hash of all these files is part of a run's settings. `problems.importer` runs them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import Meta

from ketscale.config.block import Name, Text, parse
from ketscale.config.family import Model
from ketscale.errors import UserError, damaged, short, within
from ketscale.files import sha256
from ketscale.grid import canonical

# A statement that imports one of these names, and no relative one, never means a user's file.
RESERVED = {*sys.stdlib_module_names, "ketscale"}
_INIT = "/__init__.py"


@dataclass(frozen=True)
class OwnCode:
    """A user's file and what it imports from its folder.

    file: as the user names it. sources: the content of each file by its name below the folder that it is imported from,
    such as 'ring.py' or 'parts/__init__.py'; the user's own is the first. paths: where each was read.
    """

    file: str
    sources: Mapping[str, bytes]
    paths: Mapping[str, str]

    @classmethod
    def read(cls, file: str) -> Self:
        """The code that begins in `file`.

        Raises:
            UserError: a file is missing or is not Python; names it, and the line.
        """
        path = Path(file).expanduser()
        if path.suffix != ".py" or not path.is_file():
            raise UserError(f"{file}: there is no such file of Python (.py) in {Path.cwd()}; name another")
        contents: dict[str, tuple[Path, bytes]] = {}
        waiting = [(_name(path), path)]
        for name, at in waiting:
            if name not in contents:
                contents[name] = at, at.read_bytes()
                waiting += _imported(_tree(at, contents[name][1]), name, (path.parent, Path()))
        return cls(
            file,
            {name: content for name, (_, content) in contents.items()},
            {name: str(at) for name, (at, _) in contents.items()},
        )

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the names of all files and of what they say, whatever their comments, docstrings and layout are."""
        codes = ((name, _code(_tree(self.paths[name], self.sources[name]))) for name in sorted(self.sources))
        return hashlib.sha256(repr(list(codes)).encode()).hexdigest()

    @cached_property
    def modules(self) -> dict[str, str]:
        """The names of the files by those of the modules, such as 'parts'; the user's own is the first."""
        return {module_of(name): name for name in self.sources}

    def packed(self) -> bytes:
        """The bytes of a zip archive of all files; equal for equal files."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in self.sources.items():
                archive.writestr(zipfile.ZipInfo(name), content)
        return buffer.getvalue()

    @classmethod
    def unpacked(cls, path: Path, file: str) -> Self:
        """The code in an archive that `packed` made, or that has the same files in another order.

        file: the user's own, as the settings name it.

        Raises:
            UserError: it cannot be read.
        """
        with (
            damaged(f"{path}: cannot be read", "train the run again"),
            zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive,
        ):
            names = sorted(archive.namelist(), key=lambda name: name != _name(Path(file)))
            sources = {name: archive.read(name) for name in names}
        return cls(str(path), sources, {name: f"{path}/{name}" for name in sources})


def _name(path: Path) -> str:
    """The name of the user's own file among all."""
    return re.sub(r"\W", "_", path.stem) + ".py"


def module_of(name: str) -> str:
    """The module in a file of this name: 'parts' of 'parts/__init__.py'."""
    return name.removesuffix(_INIT).removesuffix(".py").replace("/", ".")


def _tree(path: Path | str, content: bytes) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what the code says; it warns again where it is run
            return ast.parse(importlib.util.decode_source(content), str(path))
    except (SyntaxError, UnicodeDecodeError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path}, line {getattr(error, 'lineno', None) or 1}: {short(error)}") from None


def _code(tree: ast.Module) -> str:
    """What a file says, as a text without comments, docstrings and positions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = node.body[ast.get_docstring(node, clean=False) is not None :]
        # Some versions of Python show empty lists, and some have lists that others lack.
        for name, value in list(ast.iter_fields(node)):
            if value == []:
                delattr(node, name)
    return ast.dump(tree)


def _imported(tree: ast.Module, name: str, roots: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """The files of the user that the module in a file of this name imports, each with its name below its root."""
    package = module_of(name) if name.endswith(_INIT) else module_of(name).rpartition(".")[0]
    for node in ast.walk(tree):
        modules, relative = list[str](), isinstance(node, ast.ImportFrom) and node.level > 0
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if relative else []
            module = ".".join(filter(None, [*above, node.module]))
            modules = [module, *(f"{module}.{alias.name}".lstrip(".") for alias in node.names)]
        for parts in (module.split(".") for module in modules if module):
            if relative or parts[0] not in RESERVED:
                for length in range(1, len(parts) + 1):
                    yield from _located("/".join(parts[:length]), roots)


def _located(place: str, roots: Iterable[Path]) -> list[tuple[str, Path]]:
    """The first file of a module with its name, if the user has one."""
    names = (f"{place}{_INIT}", f"{place}.py")
    return [(name, root / name) for root in roots for name in names if (root / name).is_file()][:1]


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
                    f"{where}.{name}: {value!r} is no setting ({short(error)}); write it as a text"
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
        raise UserError(f"{name} (reads) cannot be read in {Path.cwd()} ({error.strerror})") from None
