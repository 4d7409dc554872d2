"""Runs a user's own code (`config.own_code`): imports it as it was hashed, under a name made from the hash.

Nothing of it is found by its name elsewhere in the process, so that two versions of a file do not meet. Only what
trains, tries, prepares or loads a model imports this module.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.util
import os
import random
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from ketscale.config import OwnCode
from ketscale.config.own_code import TAKEN
from ketscale.errors import OWN, UserError

# The generators among what all code of a process shares.
NUMPY_GENERATOR, TORCH_GENERATOR = "NumPy's global generator", "torch's global generator"
GENERATORS = ("random's generator", NUMPY_GENERATOR, TORCH_GENERATOR)


def imported(code: OwnCode, expected: str) -> ModuleType:
    """The module of the user's file, imported anew.

    expected: the hash in the settings of the run.

    Raises:
        UserError: the code is not the one of the settings; or it imports a file of the user's that the hash does not cover.
        BaseException: whatever the code raises, SystemExit too.
    """
    if code.hash != expected:
        raise UserError(
            f"{code.file}: is not the code that the settings of this run have; start the run again, or bring the code back"
        )
    importer = _Importer(code)
    for name in [each for each in sys.modules if f"{each}.".startswith(f"{importer.package}.")]:
        del sys.modules[name]
    sys.meta_path[:] = [importer, *(each for each in sys.meta_path if each != importer)]
    with running(0):
        return importlib.import_module(f"{importer.package}.{next(iter(code.modules))}")


def in_use(expected: str) -> OwnCode | None:
    """The code with this hash that this process has imported; None if it has imported none."""
    codes = (finder.code for finder in sys.meta_path if isinstance(finder, _Importer))
    return next((code for code in codes if code.hash == expected), None)


def modules(expected: str) -> list[ModuleType]:
    """The modules of the code with this hash as it was last imported."""
    package = f"{OWN}{expected[:16]}."
    return [module for name, module in sys.modules.items() if name.startswith(package)]


class Shared:
    """What all code of a process shares, as it is now: a user's own could change it for the rest."""

    def __init__(self) -> None:
        self._before = {name: read() for name, (read, _) in _shared().items()}

    def changed(self) -> list[str]:
        """The names of what is no longer as it was."""
        return [name for name, (read, _) in _shared().items() if read() != self._before[name]]

    def restore(self) -> None:
        """Make all as it was."""
        for name in self.changed():
            _shared()[name].write(self._before[name])


@contextlib.contextmanager
def running(seed: int) -> Iterator[None]:
    """Inside the block the user's code may run: random generators begin with `seed`, and what is shared stays as it is."""
    import numpy as np
    import torch

    before = Shared()
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (the global one)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        before.restore()


class _SharedThing(NamedTuple):
    read: Callable[[], Any]
    write: Callable[[Any], object]


def _shared() -> dict[str, _SharedThing]:
    import numpy as np
    import torch

    def numpy_state() -> tuple[Any, ...]:
        state: Any = np.random.get_state()  # noqa: NPY002 (the global one)
        kind, key, *rest = state
        return kind, key.tobytes(), *rest

    def set_numpy_state(state: tuple[Any, ...]) -> None:
        kind, key, *rest = state
        np.random.set_state((kind, np.frombuffer(key, np.uint32), *rest))  # noqa: NPY002

    def set_torch_state(state: list[int]) -> None:
        torch.set_rng_state(torch.tensor(state, dtype=torch.uint8, device="cpu"))

    return {
        # First, since what is read below makes tensors on it.
        "torch's default device": _SharedThing(
            torch.get_default_device,
            # A device that is set, even the usual one, slows down whatever torch does.
            lambda device: torch.set_default_device(None if device.type == "cpu" else device),
        ),
        "random's generator": _SharedThing(random.getstate, random.setstate),
        NUMPY_GENERATOR: _SharedThing(numpy_state, set_numpy_state),
        TORCH_GENERATOR: _SharedThing(lambda: torch.get_rng_state().tolist(), set_torch_state),
        "torch's default type": _SharedThing(torch.get_default_dtype, torch.set_default_dtype),
        "torch's number of threads": _SharedThing(torch.get_num_threads, torch.set_num_threads),
        "whether torch computes gradients": _SharedThing(torch.is_grad_enabled, torch.set_grad_enabled),
        "the working directory": _SharedThing(os.getcwd, os.chdir),
    }


class _Importer(ExecutionLoader, MetaPathFinder):
    """Finds and loads the modules of one user's code as parts of a package that is named by its hash.

    Statements of these modules that import one of them get it from there. No code of theirs imports another file from
    beside them.
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
        self._own_folders = (Path(next(iter(code.paths.values()))).resolve().parent, Path.cwd())
        self._looking = False
        self._builtins = {**vars(builtins), "__import__": self._import}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Importer) and self.package == other.package

    __hash__ = None  # type: ignore[assignment]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module of the user's; None for all others, unless the user's code may not import it."""
        if fullname in self._modules:
            file = self._modules[fullname]
            return importlib.util.spec_from_file_location(
                fullname,
                self.code.paths.get(file, self.code.file),
                loader=self,
                submodule_search_locations=[] if self.is_package(fullname) else None,
            )
        if fullname.startswith(f"{self.package}."):
            name = fullname.removeprefix(f"{self.package}.")
            raise ModuleNotFoundError(f"No module named {name!r}", name=fullname)
        # A finder of others may ask all finders, and so this one again.
        if self._looking or not self._asks():
            return None
        self._looking = True
        try:
            return self._allowed(fullname, path, target)
        finally:
            self._looking = False

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
        if level or first in TAKEN or top not in self._modules:
            return builtins.__import__(name, globals, locals, fromlist, level)
        found = builtins.__import__(f"{self.package}.{name}", globals, locals, fromlist or ("",), 0)
        return found if fromlist else sys.modules[top]

    def _asks(self) -> bool:
        """Whether the user's code is what leads to an import."""
        frame: FrameType | None = sys._getframe(1)
        while frame and not f"{frame.f_globals.get('__name__')}.".startswith(f"{self.package}."):
            frame = frame.f_back
        return frame is not None

    def _allowed(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """The place of a module of others.

        Raises:
            UserError: it is a file of the user's.
        """
        for finder in sys.meta_path:
            spec = None if isinstance(finder, _Importer) else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.has_location and spec.origin and self._is_own(Path(spec.origin).resolve()):
                    raise UserError(
                        f"{self.code.file} imports {spec.origin}, of which the settings do not have the content, so that a "
                        f"change would go unnoticed: write `import {name}` and keep it beside the file or the config, or "
                        "install it"
                    )
                return spec
        return None

    def _is_own(self, path: Path) -> bool:
        return any(map(path.is_relative_to, self._own_folders)) and not any(
            map(path.is_relative_to, installed())
        )


def installed() -> list[Path]:
    """The folders of what is installed, which may be below a user's."""
    package, python = str(Path(__file__).parents[1]), sysconfig.get_paths().values()
    places = (package, sys.prefix, sys.base_prefix, site.getusersitepackages(), *python)
    return [Path(place).resolve() for place in places]
