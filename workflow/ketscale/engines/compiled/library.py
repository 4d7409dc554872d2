"""Machine code, compiled once for this kind of processor, cached on disk and loaded by every process.

The cache is the folder named by KETSCALE_CACHE, else `ketscale` in XDG_CACHE_HOME (~/.cache). A file's
name is a hash of all that its code depends on: its recipe, the sources that write it, LLVM's version and the
processor's type and features. So a user's machines of different types can share a folder. Files are put in place by
renaming and have a checksum against damage. Against other users, who could write a checksum too, the folder and its
files must be the user's or root's, and nobody else may write to them. If many processes want the same code at once,
one compiles it. Where the folder cannot be used, each process compiles its own, and a warning says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import llvmlite.binding as llvm
from filelock import FileLock, Timeout

from ketscale.engines.compiled.threads import pool
from ketscale.files import clear, write_atomic

CHECKSUM = hashlib.sha256().digest_size
# How long to wait for another process that compiles the same code, which takes seconds.
_PATIENCE_S = 60.0

# A low level of LLVM's optimisation is enough: the code is written unrolled and vectorised.
OPTIMISE = 1


class Recipe(NamedTuple):
    """How to write some code.

    identity: text that is equal for equal code only. functions: the names of the code's functions.
    write: returns an `ir.Module` with these functions. sources: the files that write it, besides this package.
    """

    identity: str
    functions: tuple[str, ...]
    write: Callable[[], Any]
    sources: tuple[Path, ...]


class Library:
    """The compiled functions of one recipe, which are called with the address of their arguments."""

    def __init__(self, recipe: Recipe) -> None:
        code = ensure(recipe)
        # The engine owns the code, so it must be kept as long as the functions.
        self._engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self._addresses = {name: self._engine.get_function_address(name) for name in recipe.functions}
        # Each takes the address of its arguments and runs on the calling thread.
        self.on_one_thread = {name: _PROTOTYPE(address) for name, address in self._addresses.items()}

    def address(self, name: str) -> int:
        """A function's place in memory, as long as this library lives."""
        return self._addresses[name]

    def on_threads(self, name: str, arguments: int, threads: int) -> None:
        """Run a function on `threads` threads of torch's own pool, if it can be used; one is the calling thread.

        Functions take their work from counters, so that the results do not depend on the number of threads.
        """
        parallel = None if threads == 1 else pool()
        if parallel is None:
            self.on_one_thread[name](arguments)
        else:
            parallel(self._addresses[name], arguments, threads, 0)


_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def vector_bytes() -> int:
    """Width of this processor's vectors in bytes."""
    features = _features()
    for feature, size in (("avx512f", 64), ("avx", 32)):
        if features.get(feature):
            return size
    return 16


def has(feature: str) -> bool:
    """Whether this processor has a feature, by LLVM's name."""
    return bool(_features().get(feature))


@cache
def _features() -> dict[str, bool]:
    return dict(llvm.get_host_cpu_features())


def _target_machine() -> Any:
    """A new code generator for this processor; an engine owns the one that it gets, so each needs its own."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2)


@cache
def _environment(sources: tuple[Path, ...]) -> bytes:
    """A hash of all that code depends on besides its recipe's identity."""
    digest = hashlib.sha256()
    for source in (*sorted(Path(__file__).parent.glob("*.py")), *sources):
        digest.update(source.read_bytes())
    parts = (
        llvmlite.__version__,
        llvm.llvm_version_info,
        llvm.get_host_cpu_name(),
        sorted(_features().items()),
    )
    digest.update(repr(parts).encode())
    return digest.digest()


def cache_folder() -> Path:
    """The folder of compiled code."""
    own = os.environ.get("KETSCALE_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ketscale"


def _file(recipe: Recipe) -> Path:
    name = hashlib.sha256(_environment(recipe.sources) + recipe.identity.encode()).hexdigest()[:40]
    return cache_folder() / f"{name}.o"


def ensure(recipe: Recipe) -> bytes:
    """The code of a recipe, which is compiled if it is not kept."""
    code = None
    try:
        file = _file(recipe)
    except RuntimeError as error:  # there is no home
        _warn_unkept(f"cannot keep compiled code ({error})")
        return compile_(recipe)
    try:
        file.parent.mkdir(0o700, parents=True, exist_ok=True)
        if (risk := _risk(file.parent.stat())) is not None:
            raise PermissionError(errno.EPERM, risk, str(file.parent))
        code = _read(file)
        if code is None:
            with contextlib.ExitStack() as stack:
                # Whoever compiles it may have been stopped, and some file systems have no locks: then it is compiled twice.
                with contextlib.suppress(Timeout, NotImplementedError):
                    stack.enter_context(FileLock(file.with_suffix(".lock"), timeout=_PATIENCE_S))
                if (code := _read(file)) is None:
                    code = compile_(recipe)
                    clear(file.parent)
                    write_atomic(file, hashlib.sha256(code).digest() + code, mode=0o600)
    except OSError as error:  # the folder cannot be used
        _warn_unkept(f"cannot keep compiled code in {file.parent} ({error.strerror or error})")
    return compile_(recipe) if code is None else code


@cache
def _warn_unkept(reason: str) -> None:
    warnings.warn(
        f"{reason}: every process compiles it again, unless KETSCALE_CACHE is a folder of your own",
        stacklevel=2,
    )


def compile_(recipe: Recipe) -> bytes:
    """An object file with the recipe's functions, for this processor."""
    machine = _target_machine()
    compiled = llvm.parse_assembly(str(recipe.write()))
    compiled.triple = machine.triple
    compiled.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=OPTIMISE)
    options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
    llvm.create_pass_builder(machine, options).getModulePassManager().run(
        compiled, llvm.create_pass_builder(machine, options)
    )
    return bytes(machine.emit_object(compiled))


def _risk(status: os.stat_result) -> str | None:
    """Why somebody else than this user and root may have written machine code here; None if nobody can have."""
    if os.name != "posix":
        return None
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {status.st_uid}"
    return "others may write to it; chmod go-w closes it" if status.st_mode & 0o022 else None


def _read(file: Path) -> bytes | None:
    """The code in a file, or None if the file is missing, incomplete, or may be somebody else's."""
    try:
        with file.open("rb") as stream:
            if _risk(os.fstat(stream.fileno())) is not None:
                return None
            content = stream.read()
    except FileNotFoundError:
        return None
    code = content[CHECKSUM:]
    return code if hashlib.sha256(code).digest() == content[:CHECKSUM] else None
