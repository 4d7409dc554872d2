"""A record names the code, the commit and the packages that a run started with, whatever happens while it trains."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from ketscale.config import Data
from ketscale.errors import UserError
from ketscale.jobs import outcome, provenance, results, started
from ketscale.parallel.single import Single
from tests import record_maker as maker
from tests.toys import run_at

CONFIG = maker.config(one=maker.study(seed=0))
SETTINGS = CONFIG.settings(CONFIG.runs[0])
# At the first look at the sources, it says what has been imported until then.
FIRST_LOOK = """
import os, sys
from ketscale.cli import main
from ketscale.jobs import provenance
def look():
    print(*sys.modules, flush=True)
    os._exit(0)
provenance._read = look
main(["train", sys.argv[1]])
"""


def forget():
    """As in a new process."""
    for function in (provenance.code_hash, provenance.snapshot, provenance._first):
        function.cache_clear()


class Checkout:
    """A checkout of git with a package of one module, in the place of this one."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.module = folder, folder / "package" / "training.py"
        self.module.parent.mkdir()
        self.git("init", "-q")
        self.commit("a = 1\n")
        monkeypatch.setattr(provenance, "SOURCES", self.module.parent)
        self.forget()

    def git(self, *arguments):
        command = ["git", "-C", str(self.folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
        result = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)
        return result.stdout.strip()

    def commit(self, text):
        self.module.write_text(text)
        self.git("add", ".")
        self.git("commit", "-qm", "a change")
        self.head = self.git("rev-parse", "HEAD")

    def forget(self):
        forget()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    yield (result := Checkout(tmp_path, monkeypatch))
    monkeypatch.undo()
    result.forget()


def record():
    """What a run leaves that ends now."""
    ended = outcome.Outcome("out_of_memory", 0.0, "too large")
    result = results.record_of(SETTINGS, Data(), None, ended, {})
    return result["code"], result["packages"]


def test_what_is_committed_or_installed_while_runs_train_is_in_none_of_their_records(checkout, monkeypatch):
    first, version = checkout.head, importlib.metadata.version
    started = provenance.snapshot()
    assert (started["code"]["commit"], started["code"]["dirty"]) == (first, False)
    checkout.commit("a = 2\n")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{version(name)}.post1")
    code, packages = record()
    # The runs of a cohort end one after the other.
    checkout.module.write_text("a = 3\n")
    assert record() == (code, packages) == ({**started["code"], "imported": ""}, started["packages"])
    checkout.forget()
    later, upgraded = record()
    assert (later["commit"], later["dirty"]) == (checkout.head, True) and later["hash"] != code["hash"]
    assert upgraded["torch"] == f"{packages['torch']}.post1"


def test_they_are_read_before_what_trains_is_imported(tmp_path: Path):
    result = subprocess.run(
        [sys.executable, "-c", FIRST_LOOK, CONFIG.runs[0].path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    modules = result.stdout.split()
    assert "ketscale.jobs.provenance" in modules
    trains = (
        "torch",
        "numpy",
        "ketscale.training",
        "ketscale.problems",
        "ketscale.engines",
        "ketscale.config",
    )
    assert not [name for name in modules if name.startswith(trains)]


def test_code_that_is_edited_while_it_is_imported_trains_nothing(checkout):
    world = Single(run_at("cpu-n1r1t1"))
    started.demand_one_code(world)
    checkout.module.write_text("a = 2\n")
    with pytest.raises(UserError, match="code was changed while this run started: start it again"):
        started.demand_one_code(world)


def test_a_rank_that_started_with_other_code_trains_nothing(checkout, monkeypatch):
    world = Single(run_at("cpu-n1r1t1"))
    monkeypatch.setattr(world, "gather", lambda own: [own, ("b" * 64, "b" * 64)])
    with pytest.raises(UserError, match="code was changed while this run started"):
        started.demand_one_code(world)


def test_a_look_at_a_checkout_leaves_it_alone(checkout):
    """Not even git's index is written: somebody may be at work there."""
    index = checkout.folder / ".git" / "index"
    checkout.module.touch()  # git would note the new time
    before = index.stat().st_mtime_ns, index.read_bytes()
    assert provenance.git_state(checkout.folder)["dirty"] is False
    assert (index.stat().st_mtime_ns, index.read_bytes()) == before


def test_the_hash_of_the_code_is_that_of_what_trains(tmp_path, monkeypatch):
    for name in ("training/loop.py", "analysis/report.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("a = 1\n")
    monkeypatch.setattr(provenance, "SOURCES", tmp_path)

    def now():
        forget()
        return provenance.code_hash()

    before = now()
    (tmp_path / "analysis/report.py").write_text("a = 2\n")
    assert now() == before
    (tmp_path / "training/loop.py").write_text("a = 2\n")
    assert now() != before
    forget()


SOURCE = '"""A loop."""\nSTEPS = 20\n\n\ndef train(steps=STEPS):\n    """Train."""\n    return steps  # of one epoch\n'


@pytest.mark.parametrize(
    ("name", "before", "after", "same"),
    [
        ("loop", "steps=STEPS", "steps: int = STEPS", False),
        ("loop", "= 20", "= 21", False),
        ("other", "= 20", "= 21", True),
    ],
)
def test_only_the_code_of_imported_modules_tells_two_runs_apart(
    tmp_path, monkeypatch, name, before, after, same
):
    """Not that of another family's model."""
    package = tmp_path / "package"
    (package / "training").mkdir(parents=True)
    for module in ("loop", "other"):
        (package / "training" / f"{module}.py").write_text(SOURCE)
    monkeypatch.setattr(provenance, "SOURCES", package)
    monkeypatch.setitem(sys.modules, "package.training.loop", object())

    def now():
        forget()
        return provenance.imported()

    first = now()
    assert len(first) == provenance.NAME + provenance.SOURCE
    edited = package / "training" / f"{name}.py"
    edited.write_text(SOURCE.replace(before, after))
    assert (now() == first) == same
    forget()


def test_no_two_modules_have_the_same_short_name():
    names = list(provenance._read())
    assert len({provenance.short(name) for name in names}) == len(names)
