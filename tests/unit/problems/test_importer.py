"""A user's own code runs as it was hashed, and leaves nothing behind but itself."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from ketscale.config import OwnCode
from ketscale.errors import UserError, in_words
from ketscale.problems import importer
from tests.own_models import write


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in; Python finds its modules too, as it does where PYTHONPATH names it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def imported(project: Path, text: str, **files: str) -> ModuleType:
    """The module of models/ring.py with this text, beside these files."""
    others = {name.replace("__", "/") + ".py": content for name, content in files.items()}
    write(project, {"models/ring.py": text, **others})
    code = OwnCode.read("models/ring.py")
    return importer.imported(code, code.hash)


def message_of(error: pytest.ExceptionInfo[BaseException]) -> str:
    """What a command prints about it."""
    return in_words(error.value) or "nothing"


@pytest.mark.parametrize(
    "text",
    [
        "import parts\nx = parts.x",
        "import models.parts as p\nx = p.x",
        "from models import parts\nx = parts.x",
        "from .parts import x",
        "from kit.gates import x",
        "def late():\n    import parts\n    return parts.x\nx = late()",
    ],
)
def test_it_imports_its_own_files_in_every_way(project: Path, text: str) -> None:
    gates = "from .. import parts\nfrom . import zero\nx = parts.x"
    write(project, {"models/kit/__init__.py": "zero = 0", "models/kit/gates.py": gates})
    assert imported(project, text, models__parts="x = 5").x == 5
    assert "parts" not in sys.modules and "kit" not in sys.modules


def test_two_versions_do_not_meet(project: Path) -> None:
    text = "import parts\ndef late():\n    import parts\n    return parts.x"
    first = imported(project, text, models__parts="x = 1")
    second = imported(project, text, models__parts="x = 2")
    assert (first.late(), second.late()) == (1, 2)


def test_each_import_begins_anew(project: Path) -> None:
    text = "import numpy as np\nrng = np.random.default_rng(0)\nimport torch\nx = torch.rand(2)"
    first, second = (imported(project, text) for _ in range(2))
    assert first.rng.random() == second.rng.random()
    assert torch.equal(first.x, second.x)


def test_other_content_than_that_of_the_settings_is_refused(project: Path) -> None:
    write(project, {"ring.py": "x = 1"})
    code = OwnCode.read("ring.py")
    write(project, {"ring.py": "raise RuntimeError('it was run')"})
    with pytest.raises(UserError, match=r"ring.py: is not the code of this run's settings"):
        importer.imported(OwnCode.read("ring.py"), code.hash)


def test_global_generators_and_settings_stay_as_they_were(project: Path) -> None:
    text = """
import random, numpy as np, torch
random.seed(1); np.random.seed(1); torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
torch.set_num_threads(7)
x = random.random(), np.random.rand(), torch.rand(1)
"""

    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(1))  # noqa: NPY002

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    threads = torch.get_num_threads()
    expected = drawn()
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    torch.set_rng_state(states[2])
    imported(project, text)
    assert (torch.get_default_dtype(), torch.get_num_threads()) == (torch.float32, threads)
    assert drawn() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\nx = 1 / 0", "models/ring.py, line 2: ZeroDivisionError: division by zero"),
        ("import parts", "models/parts.py, line 1: ModuleNotFoundError: No module named 'nope'"),
        (
            "from ketscale.engines.circuits.circuit import Circuit, Gate\nCircuit(1, (Gate('RXX', (0,), ()),))",
            "models/ring.py, line 2: unknown gate 'RXX'",
        ),
    ],
)
def test_an_error_names_file_and_line_of_the_users_code(project: Path, text: str, expected: str) -> None:
    with pytest.raises((Exception, SystemExit)) as error:
        imported(project, text, models__parts="import nope")
    assert message_of(error).startswith(expected), message_of(error)
