"""Whatever a user or a folder of results gives is read only if it is a regular file: nothing waits for a pipe."""

from __future__ import annotations

import ast
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ketscale import files
from ketscale.analysis import completeness, stamp
from ketscale.analysis.claims import ledger
from ketscale.analysis.report import merged
from ketscale.config import load as load_config
from ketscale.engines.compiled import library as compiled
from ketscale.errors import UserError, in_words
from ketscale.interop.qiskit import from_qasm2
from ketscale.jobs import cohorts, prepared, supervise
from ketscale.jobs.ownership import lease, signs
from ketscale.jobs.slurm import site
from ketscale.jobs.status import survey
from ketscale.measure import record
from ketscale.problems import arrays, fetching, library, store
from ketscale.problems.eeg import eegmmidb
from ketscale.problems.eeg.workloads import Eegmmidb
from ketscale.problems.images import idx, own, resnet
from ketscale.problems.registry import FAMILIES
from ketscale.problems.sentences import sentences
from ketscale.training import checkpoint
from tests.own_files import NETWORK, config, loaded, pictures

PACKAGE = Path(files.__file__).parent


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """What waits for a pipe is a failure, not a hang, also if a reader turns errors into words."""
    waits = []

    def waited(number: int, frame: FrameType | None) -> None:
        waits.append(frame)
        raise TimeoutError("waited for a file that is not a regular one")

    before = signal.signal(signal.SIGALRM, waited)
    signal.setitimer(signal.ITIMER_REAL, 60, 1)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    assert not waits


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    """One without an end."""
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        # A socket's path is limited to some hundred characters.
        here = os.open(path.parent, os.O_RDONLY)
        made.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)


def folder(path: Path) -> None:
    path.mkdir()


PROTOCOL = config({"kind": "arrays", "file": "a"}).protocols["p"]
RECORDING = Eegmmidb(split="subjects", split_seed=0, subjects=[1], runs=[4], rate=160.0, window=(1.0, 4.0))
OTHERS = [pipe, device, listening, folder]


def in_images(path: Path) -> Any:
    """Read a folder of images in which the file is one."""
    pictures(path.parent / "folder")
    path.rename(path.parent / "folder/day/0.png")
    return loaded({"kind": "image-folder", "folder": str(path.parent / "folder"), **NETWORK})


# Every reader of a file that a user gives, or that lies in a folder of results, with the name that the file has there.
READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "config": ("config.yaml", load_config),
    "site": ("site.yaml", lambda p: site.load_site(lambda run: {}, (), p)),
    "claims": ("claims.yaml", ledger.load),
    "stamp": ("stamp.json", lambda p: stamp._read(p.parent)),
    "csv": ("history.csv", files.read_csv),
    "hash": ("model.safetensors", files.sha256),
    "log": ("train.log", completeness._last_line),
    "merged": ("tables/config.json", lambda p: merged.merge([p.parent.parent, p.parent], p.parent / "out")),
    "npz": ("x.npz", lambda p: arrays.read_npz(p, {"x": ("x",)})),
    "npy": ("x.npy", arrays.read_npy),
    "idx": ("x", idx.read),
    "image": ("x.png", own._mode),
    "image folder": ("x.png", in_images),
    "recording": ("S001R04.edf", lambda p: eegmmidb._trials(RECORDING, p)),
    "recording's size": ("S001R04.edf", eegmmidb._check_size),
    "text": ("text.txt", sentences.read),
    "network": ("weights.safetensors", resnet.read_weights),
    "imagenet": ("model.safetensors", lambda p: resnet.fetch_imagenet(p.parent / "out", p.parent)),
    "model": ("model.safetensors", library.load),
    "fetched": ("manifest.json", fetching.folder_of),
    "prepared": ("features.json", lambda p: store.opened(p, (), 1)),
    "source": ("x.npz", lambda p: prepared.digest([p], p.parent / "features.json")),
    "checkpoint": ("ab.pt", lambda p: checkpoint.load(p.parent.parent, "ab")),
    "circuit": ("circuit.qasm", from_qasm2),
    "cohort": ("cohort.json", lambda p: cohorts.read(p, FAMILIES)),
    "compiled": ("code", compiled._read),
    "settings": ("x.npz", lambda p: loaded({"kind": "arrays", "file": str(p)})),
}  # fmt: skip
# What does without a file that it cannot read, and what it says then.
WITHOUT: dict[str, tuple[str, Callable[[Path], Any], Callable[[Any], bool]]] = {
    "record": ("metrics.json", record.read, lambda found: found.state == "refused"),
    "features hash": ("features.json", prepared.features_hash, lambda found: found is None),
    "note": (supervise.NOTE, lambda p: supervise.read_note(p.parent), lambda found: found == {}),
    "sign of waiting": (signs.WAITING, lambda p: signs.read_waiting(p.parent), lambda found: found is None),
    "progress": ("ab.csv", lambda p: survey._progress(p.parent, PROTOCOL), lambda found: found == ""),
    "valid": (store.INNER, lambda p: store._valid(p.parent, (), 1), lambda found: found is False),
    "lease": ("lease/1.json", lambda p: lease.read(p.parent.parent), lambda found: found == {}),
    "lease before": (
        "lease/1.json",
        lambda p: lease.Lease(p.parent.parent).try_acquire(),
        lambda found: found is False,
    ),
}


@pytest.mark.parametrize("make", OTHERS)
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_refuses_what_is_no_regular_file_at_once(
    reader: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    name, read = READERS[reader]
    (tmp_path / "checkpoint").mkdir()
    path = tmp_path / "checkpoint" / name
    path.parent.mkdir(exist_ok=True)
    make(path)
    with pytest.raises((UserError, OSError)) as raised:
        read(path)
    said = in_words(raised.value)
    assert said is not None and len(said.splitlines()) <= 2


@pytest.mark.parametrize("make", OTHERS)
@pytest.mark.parametrize("reader", WITHOUT)
def test_a_reader_that_does_without_a_file_waits_for_none(
    reader: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    name, read, right = WITHOUT[reader]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    make(path)
    assert right(read(path))


def test_a_lock_of_compiled_code_that_is_a_pipe_is_an_error(tmp_path: Path) -> None:
    pipe(tmp_path / "lock")
    with pytest.raises(OSError, match="lock"), files.alone(tmp_path / "lock", patience_s=1):
        pass


def test_a_pipe_is_not_taken_for_a_file_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where something else takes the file's place after the first look."""
    pipe(tmp_path / "x")
    monkeypatch.setattr(files, "require_regular", lambda path: None)
    with pytest.raises(OSError, match="is a pipe, not a regular file"):
        files.opened(tmp_path / "x")


# What opens a path. Through `files` it is safe.
OPENING = {
    "open", "read_text", "read_bytes", "safe_open", "load_file", "read_csv", "read_raw_edf", "copyfile", "copy2",
    "ZipFile", "loadtxt", "genfromtxt", "fromfile", "memmap",
}  # fmt: skip
# What may call them, and why.
ALLOWED = {
    "the opener itself": ("files.py",),
    "files of the kernel": (
        "process.py", "measure/host.py", "jobs/ownership/host_lock.py", "measure/quiet.py", "measure/topology.py",
        "measure/cgroup.py",
        "parallel/ddp.py",
    ),
    "sources of the package": ("jobs/provenance.py: _read", "engines/compiled/library.py: _environment"),
    "a header of jaxlib": ("engines/compiled/foreign.py: registered",),
    "after `require_regular`": (
        "problems/library.py: load", "problems/images/resnet.py: read_weights", "problems/images/resnet.py: fetch_imagenet",
        "problems/eeg/eegmmidb.py: _trials", "training/history.py: _write",
    ),
    "after their SHA-256 was checked": (
        "problems/store.py: array", "problems/store.py: arrays", "problems/images/features.py: _fill",
        "problems/sentences/sentences.py: read_prepared",
    ),
    "of what was read": (
        "problems/library.py: predictions",
        "config/own_code.py: packed", "config/own_code.py: unpacked", "problems/rows/own.py: read",
        "problems/arrays.py: read_npz", "problems/arrays.py: shapes", "problems/images/idx.py: read", "problems/images/own.py: _opened",
    ),
    "makes the file": (
        "analysis/report/__init__.py: archive", "commands/data.py: _init", "analysis/advice/trials.py: _try", "jobs/ownership/lease.py: _create", "problems/store.py: _sync",
    ),
    "never waits": ("analysis/stamp.py: _lock",),
}  # fmt: skip


def opening() -> Iterator[tuple[str, str]]:
    """Every module and function of the package that opens a path in some way."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for call in ast.walk(function):
                    if isinstance(call, ast.Call) and _opens(call.func):
                        yield module, f"{module}: {function.name}"


def _opens(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        of_numpy = isinstance(called.value, ast.Name) and (called.value.id, called.attr) == ("np", "load")
        ours = isinstance(called.value, ast.Name) and called.value.id in (
            "files",
            "copy",
            "PreparedTrials",
            "PreparedFeatures",
        )
        return of_numpy or (called.attr in OPENING and not ours)
    return isinstance(called, ast.Name) and called.id in OPENING - {"read_text", "read_bytes", "read_csv"}


def test_nothing_else_in_the_package_opens_a_path() -> None:
    allowed = {place for places in ALLOWED.values() for place in places}
    found = {(module if module in allowed else place) for module, place in opening()}
    assert sorted(found - allowed) == []
    assert sorted(allowed - found) == []
