"""A workload can be a function in a Python file: it returns what an .npz file would have, and only `prepare` runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale import cli
from ketscale.config import Config, sources
from ketscale.errors import UserError, in_words
from ketscale.jobs import prepared
from ketscale.problems.registry import FAMILIES
from tests import own_files

HEAD = "import numpy as np\n\nfrom shapes import rows\n\n"
MAKE = """\
def make(count, noise=0.0):
    x = rows(count) + noise * np.random.randn(count, 3)
    return {"x": x, "y": np.array(["even", "odd"] * (count // 2), object)}  # as pandas has text
"""
SHAPES = "import numpy as np\n\n\ndef rows(count):\n    return np.arange(3.0 * count).reshape(count, 3)\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which data/make.py imports data/shapes.py."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    write(HEAD + MAKE)
    Path("data/shapes.py").write_text(SHAPES)
    return tmp_path


def write(text: str) -> None:
    Path("data/make.py").write_text(text)


def block(**settings: Any) -> dict[str, Any]:
    return {"kind": "rows", "file": "data/make.py", "function": "make", "arguments": {"count": 40}} | settings


def refused(**settings: Any) -> str:
    """What is said of a block that cannot be read, from the config to the data."""
    with pytest.raises((Exception, SystemExit)) as raised:
        own_files.loaded(block(**settings))
    said = in_words(raised.value)
    assert said is not None and len(said.splitlines()) == 1
    return said


def test_a_function_returns_the_arrays_of_an_npz_file(folder: Path) -> None:
    made = own_files.loaded(block())
    saved = own_files.npz(folder, x=np.arange(120.0).reshape(40, 3), y=["even", "odd"] * 20)
    read = own_files.loaded({"kind": "rows", "file": saved})
    assert made.digest() == read.digest()
    assert made.names == ("even", "odd")


@pytest.mark.parametrize(
    ("kind", "returned", "settings"),
    [
        ("arrays", '{"images": np.abs(values).reshape(-1, 5, 6), "y": labels}', own_files.NETWORK),
        (
            "series",
            '{"signals": values.reshape(-1, 3, 10), "y": labels, "groups": np.arange(40) // 4}',
            {"split": "groups"},
        ),
        ("rows", '{"x": values, "targets": values[:, :2]}', {"task": "regression"}),
    ],
)
def test_each_kind_of_arrays_takes_one(kind: str, returned: str, settings: dict[str, Any]) -> None:
    write(
        "import numpy as np\n\n\ndef make():\n    values = np.random.default_rng(0).random((40, 30))\n"
        f"    labels = np.arange(40) % 4\n    return {returned}\n"
    )
    assert own_files.loaded(block(kind=kind, arguments={}, **settings)) is not None


def test_random_numbers_are_the_same_in_each_call_and_leave_no_trace() -> None:
    np.random.seed(7)  # noqa: NPY002
    first, second = (own_files.loaded(block(arguments={"count": 40, "noise": 1.0})) for _ in range(2))
    assert first.digest() == second.digest()
    assert first.digest() != own_files.loaded(block()).digest()
    drawn = np.random.rand()  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002
    assert drawn == np.random.rand()  # noqa: NPY002


def test_what_the_file_imports_is_a_source_too() -> None:
    config = own_files.config(block())
    manifest = Path("features.json")
    before = prepared.digest(sources(config, "mine"), manifest)
    assert [path.name for path in sources(config, "mine")] == ["make.py", "shapes.py"]
    Path("data/shapes.py").write_text(SHAPES + "\n\n# another\n")
    assert prepared.digest(sources(config, "mine"), manifest) != before


def test_only_other_numbers_make_runs_stale() -> None:
    """A comment is prepared again, to the same features; what the function is called with is one of the settings."""

    def features(**settings: Any) -> str | None:
        config = own_files.config(block(**settings))
        config.workloads["mine"][1].sources()
        FAMILIES["rows"].prepare(config.workloads["mine"][1], Path("out/features.json"), None)  # type: ignore[misc]
        return prepared.features_hash(Path("out/features.json"))

    before = features()
    write(HEAD + "# another\n" + MAKE)
    assert features() == before
    write(HEAD + MAKE.replace("rows(count)", "rows(count) ** 2"))
    assert features() != before
    assert features(arguments={"count": 60}) != before


def test_no_other_command_runs_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    write("raise SystemError('it was run')\n\n\n" + MAKE)
    Path("config.yaml").write_text(json.dumps(own_files.given(block())))
    for command in (["status"], ["plan"], ["report", "--partial"]):
        cli.main(command)
        said = capsys.readouterr()
        assert "it was run" not in said.out + said.err
    assert cli.main(["prepare", "mine"]) == 2
    assert capsys.readouterr().err == "ketscale: data/make.py, line 1: SystemError: it was run\n"


def test_sizes_follow_what_the_settings_say() -> None:
    given = own_files.given(block(feature_count=3))
    given["studies"]["s"]["axes"]["qubits"] = "features"
    config = Config.of(given, FAMILIES)
    assert [run.size for run in config.runs] == ["q3-l1"]
    del given["workloads"]["mine"]["feature_count"]
    with pytest.raises(UserError, match=r"workloads\.mine: feature_count is missing"):
        Config.of(given, FAMILIES)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"arguments": {"count": "8"}}, "data/shapes.py, line 5: TypeError: can't multiply"),
        ({"file": "data/other.py"}, "workloads.mine"),
        ({"file": "data.npz"}, "workloads.mine.function"),
        ({"function": None}, "workloads.mine.function"),
        ({"feature_count": 4}, "its features have shape (40, 3), but feature_count is 4"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], said: str) -> None:
    given = {name: value for name, value in block(**settings).items() if value is not None}
    if "function" not in given:
        del given["arguments"]
    with pytest.raises(Exception) as raised:  # noqa: PT011 (its words are compared below)
        own_files.loaded(given)
    assert said in (in_words(raised.value) or "")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("[1, 2]", "data/make.py: make returns a list; return a dict of arrays"),
        ('{"x": np.ones((8, 2))}', "data/make.py: make: has no array called targets or labels or y (it has x)"),
        ('{"x": [[1], [2, 3]], "y": [1, 2]}', "data/make.py: make: x"),
        ('{"x": np.ones((8, 2)), "y": [object()] * 8}', "data/make.py: make: y"),
        ('{"x": np.ones((8, 2)), "y": [1, 2] * 4, "subject": [1] * 8}', "make: has an array subject, but split: rows"),
        ('{"x": np.ma.masked_less(np.eye(8), 1), "y": [1, 2] * 4}', "data/make.py: make: x"),
        ("exit(3)", "data/make.py, line 5: it calls exit(3); leave that out"),
        ("__import__('beside').a", "data/make.py, line 5: ModuleNotFoundError: No module named 'beside'"),
    ],
)  # fmt: skip
def test_what_the_function_returns_is_checked(made: str, said: str) -> None:
    Path("data/beside.py").write_text("a = 1\n")
    write(f"import numpy as np\n\n\ndef make():\n    return {made}\n")
    assert said in refused(arguments={})
