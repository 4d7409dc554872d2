"""Runs a user's own code (`config.own_code`): imports it as it was hashed, under a name made from the hash.

Nothing of it has its own name in the process, so that two versions of a file do not meet. Only what trains, tries,
prepares or loads a model imports this module.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import importlib.util
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ketscale.config import OwnCode
from ketscale.config.own_code import RESERVED
from ketscale.errors import OWN, UserError
from ketscale.words import suggestion


def imported(code: OwnCode, expected: str) -> ModuleType:
    """The module of the user's file, imported again.

    expected: the hash in the settings of the run.

    Raises:
        UserError: the code is not the one of the settings.
        BaseException: whatever the code raises, SystemExit too.
    """
    if code.hash != expected:
        raise UserError(f"{code.file}: is not the code of this run's settings; bring it back")
    importer = _Importer(code)
    for name in [each for each in sys.modules if f"{each}.".startswith(f"{importer.package}.")]:
        del sys.modules[name]
    others = (each for each in sys.meta_path if getattr(each, "package", None) != importer.package)
    sys.meta_path[:] = [importer, *others]
    _replace_dropout()
    with running(0):
        return importlib.import_module(f"{importer.package}.{next(iter(code.modules))}")


def member(code: OwnCode, expected: str, name: str) -> Callable[..., Any]:
    """The class of this name in the user's file; raises as `imported`, or UserError if there is none."""
    module = imported(code, expected)
    if not callable(function := getattr(module, name, None)):
        names = [other for other, value in vars(module).items() if callable(value)]
        raise UserError(f"{code.file}: has no {name}{suggestion(name, names)}")
    return function


def in_use(expected: str) -> OwnCode | None:
    """The code with this hash that this process has imported; None if it has imported none."""
    codes = (finder.code for finder in sys.meta_path if isinstance(finder, _Importer))
    return next((code for code in codes if code.hash == expected), None)


@contextlib.contextmanager
def running(seed: int) -> Iterator[None]:
    """Inside the block the user's code may run: random generators begin with `seed`, and what all code shares is then as
    it was.
    """
    import numpy as np
    import torch

    generators: Any = random.getstate(), np.random.get_state()  # noqa: NPY002 (the global one)
    kind, device = torch.get_default_dtype(), torch.get_default_device()
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(torch.is_grad_enabled()):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(generators[0])
            np.random.set_state(generators[1])  # noqa: NPY002
            torch.set_default_dtype(kind)
            if torch.get_default_device() != device:
                torch.set_default_device(None if device.type == "cpu" else device)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)


@functools.cache
def _replace_dropout() -> None:
    """From now on torch's own dropout draws inside `keyed` as `SampleDropout` does, each call of a step in turn."""
    from torch import nn

    from ketscale.engines import randomness
    from ketscale.layers.dropout import SampleDropout

    torchs, own = nn.functional.dropout, SampleDropout(0.0)

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        numbers = randomness.current()
        if numbers is None or not training or p == 0:
            return torchs(input, p, training, inplace)
        own.p, own.number = p, next(numbers.calls)
        return input.copy_(own(input)) if inplace else own(input)

    nn.functional.dropout = dropout


class _Importer(ExecutionLoader, MetaPathFinder):
    """Finds and loads the modules of one user's code as parts of a package that is named by its hash.

    Statements of these modules that import one of them get it from there.
    """

    def __init__(self, code: OwnCode) -> None:
        self.package = f"{OWN}{code.hash[:16]}"
        self.code = code
        # Folders without an __init__.py are packages too.
        parts = [name.split(".") for name in code.modules]
        packages = {".".join(name[:length]): "" for name in parts for length in range(len(name))}
        self._modules: Mapping[str, str] = {
            f"{self.package}.{name}".rstrip("."): file for name, file in {**packages, **code.modules}.items()
        }
        self._builtins = {**vars(builtins), "__import__": self._import}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module of the user's; None for all others."""
        if fullname not in self._modules:
            return None
        folder: list[str] | None = [] if self.is_package(fullname) else None
        place = self.get_filename(fullname)
        return importlib.util.spec_from_file_location(
            fullname, place, loader=self, submodule_search_locations=folder
        )

    def is_package(self, fullname: str) -> bool:
        """Whether a module is in a folder."""
        return self._modules[fullname].rpartition("/")[2] in ("", "__init__.py")

    def get_filename(self, fullname: str) -> str:
        """The file, as the user knows it."""
        return self.code.paths.get(self._modules[fullname], self.code.file)

    def get_source(self, fullname: str) -> str:
        """The text that was hashed."""
        return importlib.util.decode_source(self.code.sources.get(self._modules[fullname], b""))

    def exec_module(self, module: ModuleType) -> None:
        """Run a module, whose statements import by `_import`."""
        module.__dict__["__builtins__"] = self._builtins
        super().exec_module(module)

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """`__import__` for the user's code."""
        first = name.partition(".")[0]
        top = f"{self.package}.{first}"
        if level or first in RESERVED or top not in self._modules:
            return builtins.__import__(name, globals, locals, fromlist, level)
        module = builtins.__import__(f"{self.package}.{name}", globals, locals, fromlist or ("",), 0)
        return module if fromlist else sys.modules[top]
