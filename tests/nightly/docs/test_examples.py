"""Every public name has an example in its docstring, which shows all methods of a stable class and does what it says."""

from __future__ import annotations

import doctest
import sys
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pennylane as qml
import pytest
import qiskit
import torch
from docs._generate.api import PLUG_INS, found
from qiskit.circuit import Parameter

import ketscale
import ketscale.dynamics
import ketscale.jax
from ketscale.problems.control.workloads import QubitSpectrum
from ketscale.problems.samplers import Shuffled

# What an example may use besides the names of its own module.
KNOWN = {
    "Parameter": Parameter, "QubitSpectrum": QubitSpectrum, "Shuffled": Shuffled, "jax": jax, "jnp": jnp,
    "ketscale": ketscale, "np": np, "qiskit": qiskit, "qml": qml, "torch": torch,
}  # fmt: skip
# Names that have examples too, and may change with a minor version.
DYNAMICS = [f"ketscale.dynamics.{name}" for name in ketscale.dynamics.__all__]
STABLE = [
    *(f"ketscale.{name}" for name in ketscale.__all__ if name != "__version__"),
    *(f"ketscale.jax.{name}" for name in ketscale.jax.__all__),
]
PUBLIC = [*STABLE, *PLUG_INS, *DYNAMICS]


def methods(public: Any) -> list[str]:
    """The public methods of a class that are its own, and not of a framework from which it inherits."""
    inherited = {name for base in getattr(public, "__mro__", ())[1:] for name in vars(base)}
    result = vars(public) if isinstance(public, type) else {}
    own = [
        name for name, each in result.items() if isinstance(each, FunctionType | classmethod | staticmethod)
    ]
    return [name for name in own if not name.startswith("_") and name not in inherited]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_an_example_that_runs(name: str) -> None:
    public = found(name)
    globs = vars(sys.modules[public.__module__]) | KNOWN
    tests = doctest.DocTestFinder().find(public, name, globs=globs)
    assert any(test.name == name and test.examples for test in tests)
    sources = "".join(example.source for test in tests for example in test.examples)
    assert name not in STABLE or [method for method in methods(public) if f".{method}(" not in sources] == []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    message: list[str] = []
    for test in tests:
        runner.run(test, out=message.append)
    assert runner.failures == 0, "".join(message)
