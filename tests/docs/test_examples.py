"""Every public name has an example in its docstring, and the examples do what they say."""

from __future__ import annotations

import doctest
import importlib
import re
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pennylane as qml
import pytest
import qiskit
import torch
from qiskit.circuit import Parameter

import ketscale
import ketscale.dynamics
import ketscale.jax
from ketscale.engines import specialised
from ketscale.problems.control.workloads import QubitSpectrum
from ketscale.problems.samplers import Shuffled
from tests import ROOT

# What an example may use besides the names of its own module.
KNOWN = {
    "Parameter": Parameter, "QubitSpectrum": QubitSpectrum, "Shuffled": Shuffled, "jax": jax, "jnp": jnp,
    "ketscale": ketscale, "np": np, "qiskit": qiskit, "qml": qml, "torch": torch,
}  # fmt: skip
PAGE = (ROOT / "docs" / "api.md").read_text()


def plug_ins() -> list[str]:
    """What api.md lists of `ketscale.problems`."""
    section = PAGE.split("\n## ketscale.problems\n")[1].split("\n## ")[0]
    return re.findall(r"^\.\. auto(?:class|function):: (\S+)", section, re.MULTILINE)


# Names that have examples too, and may change with a minor version.
DYNAMICS = [f"ketscale.dynamics.{name}" for name in ketscale.dynamics.__all__]
PUBLIC = [
    *(f"ketscale.{name}" for name in ketscale.__all__ if name != "__version__"),
    *(f"ketscale.jax.{name}" for name in ketscale.jax.__all__),
    *plug_ins(),
    *DYNAMICS,
]


def found(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_an_example_that_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specialised, "_chosen", list(specialised._chosen))
    public = found(name)
    globs = vars(sys.modules[public.__module__]) | KNOWN
    tests = doctest.DocTestFinder().find(public, name, globs=globs)
    assert any(test.name == name and test.examples for test in tests)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    said: list[str] = []
    for test in tests:
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_the_page_of_the_interface_says_of_every_public_name_how_stable_it_is() -> None:
    section = PAGE.split("\n## What is stable\n")[1].split("\n## ")[0]
    stable = set(re.findall(r"`(ketscale\.[\w.]+)`", section.split("\n\n")[0]))
    assert stable == {name for name in PUBLIC if name not in (*plug_ins(), *DYNAMICS)}
