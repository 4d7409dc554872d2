"""A user's own code: a file, and the modules that it imports from beside it. It is read here, and never run.

What it imports is looked for in the file's own folder, and then in the working directory, which is the config's. The
hash of all these files is part of a run's settings. `problems.importer` runs them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import re
import sys
import warnings
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

from ketscale.errors import UserError, damaged, short
from ketscale.files import expanded, read_bytes
from ketscale.words import suggestion

# A statement that imports one of these names, and no relative one, never means a user's file.
TAKEN = {*sys.stdlib_module_names, "ketscale"}
_INIT = "/__init__.py"


class Arguments(NamedTuple):
    """The arguments of a constructor or function.

    names: of all. required: those without a default. more: whether it takes others by **.
    """

    names: tuple[str, ...]
    required: tuple[str, ...]
    more: bool

    def check(self, whose: str, where: str, given: Collection[str], of_run: Collection[str] = ()) -> None:
        """Check that they have those that are `given`, and need no others than these and those that a run gives.

        Raises:
            UserError: one is unknown or missing; names it below `where`.
        """
        own = [name for name in self.names if name not in of_run]
        for name in given:
            if name not in own and not self.more:
                raise UserError(f"{where}.{name}: {whose} has no such argument{suggestion(name, own)}")
        for name in self.required:
            if name not in of_run and name not in given:
                raise UserError(f"{where}: {whose} needs {name}; add it")


@dataclass(frozen=True)
class OwnCode:
    """A user's file and what it imports from beside it.

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
            UserError: a file is missing, cannot be read or is not Python; names it, and the line.
        """
        path = expanded(file)
        if path.suffix != ".py":
            raise UserError(f"{file}: is not a file of Python (.py); name another")
        if not path.is_file():
            raise UserError(f"{file}: there is no such file in {Path.cwd()}; name another")
        found: dict[str, tuple[Path, bytes]] = {}
        waiting = [(_name(path), path)]
        for name, at in waiting:
            if name not in found:
                found[name] = at, _content(at)
                waiting += _imported(_tree(at, found[name][1]), name, (path.parent, Path()))
        return cls(
            file,
            {name: content for name, (_, content) in found.items()},
            {name: str(at) for name, (at, _) in found.items()},
        )

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the names and contents of all files."""
        digest = hashlib.sha256()
        for name, content in sorted(self.sources.items()):
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

    @cached_property
    def modules(self) -> dict[str, str]:
        """The names of the files by those of the modules, such as 'parts'; the user's own is the first."""
        return {module_of(name): name for name in self.sources}

    @property
    def classes(self) -> list[str]:
        """The classes that the user's file defines, without those whose names begin with _."""
        return self._named(ast.ClassDef)

    def arguments(self, name: str) -> Arguments:
        """The arguments of the class or function of this name.

        Raises:
            UserError: there is none, or no file says what it takes.
        """
        main = next(iter(self.modules))
        node = self._defined(main, name)
        if node is None:
            known = self._named(ast.ClassDef, ast.FunctionDef)
            raise UserError(f"{self.file}: has no {name}{suggestion(name, known)}")
        try:
            found = self._arguments_of(*node)
        except RecursionError:
            raise UserError(f"{self.file}: {name} is defined by itself; give it another name") from None
        if found is None:
            raise UserError(
                f"{self.file}: {name} has its constructor from elsewhere; give it an __init__ that names what it takes"
            )
        return found

    def has_method(self, name: str, method: str) -> bool:
        """Whether the class of this name, or one of its bases in these files, defines a method."""
        waiting = [self._defined(next(iter(self.modules)), name)]
        for found in waiting:
            module, node = found or ("", None)
            if isinstance(node, ast.ClassDef):
                if any(isinstance(each, ast.FunctionDef) and each.name == method for each in node.body):
                    return True
                bases = (self._defined(module, ast.unparse(base)) for base in node.bases)
                waiting += [base for base in bases if base not in waiting]
        return False

    def packed(self) -> bytes:
        """The bytes of a zip archive of all files; equal for equal code."""
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in self.sources.items():
                archive.writestr(zipfile.ZipInfo(name), content)
        return made.getvalue()

    @classmethod
    def unpacked(cls, path: Path, file: str) -> Self:
        """The code in an archive that `packed` made, or that has the same files in another order.

        file: the user's own, as the settings name it.

        Raises:
            UserError: it cannot be read.
        """
        with (
            damaged(f"{path}: cannot be read", "train the run again"),
            zipfile.ZipFile(io.BytesIO(read_bytes(path))) as archive,
        ):
            names = sorted(archive.namelist(), key=lambda name: name != _name(Path(file)))
            sources = {name: archive.read(name) for name in names}
        return cls(str(path), sources, {name: f"{path}/{name}" for name in sources})

    @cached_property
    def _trees(self) -> dict[str, ast.Module]:
        return {module: _tree(self.paths[name], self.sources[name]) for module, name in self.modules.items()}

    def _named(self, *kinds: type[ast.ClassDef | ast.FunctionDef]) -> list[str]:
        """What the user's file defines of these kinds, without those whose names begin with _."""
        body = self._trees[next(iter(self.modules))].body
        return [each.name for each in body if isinstance(each, kinds) and not each.name.startswith("_")]

    def _defined(self, module: str, name: str) -> tuple[str, ast.ClassDef | ast.FunctionDef] | None:
        """The module that defines a name of another one, and its last definition; None if none of these files does."""
        for node in reversed(self._trees[module].body):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                return module, node
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                source = _absolute(node, self.modules[module]) if isinstance(node, ast.ImportFrom) else ""
                if (alias.asname or alias.name) == name and source in self.modules:
                    return self._defined(source, alias.name)
        return None

    def _arguments_of(self, module: str, node: ast.ClassDef | ast.FunctionDef) -> Arguments | None:
        """The arguments of a definition; None if its constructor is that of a class of others."""
        if isinstance(node, ast.FunctionDef):
            return _arguments(node.args)
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                return _arguments(each.args, bound=True)
        if node.decorator_list:
            return None  # as that of a dataclass, which makes a constructor
        for base in node.bases:
            words = ast.unparse(base)
            if words.rpartition(".")[2] in ("Module", "Fitted"):
                return Arguments((), (), more=False)
            defined = self._defined(module, words)
            if defined is not None:
                return self._arguments_of(*defined)
        return None


def _name(path: Path) -> str:
    """The name of the user's own file among all."""
    return re.sub(r"\W", "_", path.stem) + ".py"


def module_of(name: str) -> str:
    """The module in a file of this name: 'parts' of 'parts/__init__.py'."""
    return name.removesuffix(_INIT).removesuffix(".py").replace("/", ".")


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


def _tree(path: Path | str, content: bytes) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what the code says; it warns again where it is run
            return ast.parse(importlib.util.decode_source(content), str(path))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: is not {error.encoding}; save the file in UTF-8") from None
    except SyntaxError as error:
        raise UserError(f"{path}, line {error.lineno or 1}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path}: is not Python ({short(error)})") from None


def _imported(tree: ast.Module, name: str, roots: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """The files of the user that the module in a file of this name imports, each with its name below its root."""
    for node in ast.walk(tree):
        taken = TAKEN
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node, name)
            modules = [module, *(f"{module}.{alias.name}".lstrip(".") for alias in node.names)]
            taken = set() if node.level else TAKEN
        else:
            continue
        for module in filter(None, modules):
            parts = module.split(".")
            if parts[0] in taken:
                continue
            for length in range(1, len(parts) + 1):
                yield from _located("/".join(parts[:length]), roots)


def _located(place: str, roots: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """The first file of a module with its name, if the user has one."""
    for root in roots:
        for name in (f"{place}{_INIT}", f"{place}.py"):
            if (root / name).is_file():
                yield name, root / name
                return


def _absolute(node: ast.ImportFrom, name: str) -> str:
    """The module that a statement in the file of this name imports from."""
    if not node.level:
        return node.module or ""
    package = module_of(name).split(".")[: None if name.endswith(_INIT) else -1]
    above = package[: len(package) + 1 - node.level]
    return ".".join([*above, *filter(None, [node.module])])


def _arguments(given: ast.arguments, bound: bool = False) -> Arguments:
    """The arguments of a function; bound: without the first, which is the object."""
    positional = [*given.posonlyargs, *given.args]
    needed = positional[: len(positional) - len(given.defaults)]
    keyword = dict(zip(given.kwonlyargs, given.kw_defaults, strict=True))
    names = [*positional[bound:], *keyword]
    required = [*needed[bound:], *(each for each, default in keyword.items() if default is None)]
    return Arguments(
        tuple(each.arg for each in names),
        tuple(each.arg for each in required),
        more=given.kwarg is not None,
    )
