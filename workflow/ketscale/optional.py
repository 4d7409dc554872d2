"""Optional packages: which extra installs each, and the error when one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ketscale.errors import UserError
from ketscale.process import uncollected


class Extra(NamedTuple):
    """An extra of pyproject.toml.

    enables: what works with it, in words.
    modules: the modules that KetScale imports from it, each with its distribution.
    target: the Makefile target that installs it into a checkout's environment.
    """

    enables: str
    modules: dict[str, str]
    target: str = "setup"


EXTRAS = {
    "simulators": Extra(
        "the simulators default.qubit, lightning.qubit and qiskit, and circuits of Qiskit and OpenQASM",
        {
            "pennylane": "pennylane",
            "pennylane_lightning": "pennylane-lightning",
            "qiskit": "qiskit",
            "qiskit_qasm3_import": "qiskit-qasm3-import",
            "sympy": "sympy",
        },
    ),
    "mpi": Extra("the backend mpi", {"mpi4py": "mpi4py"}),
    "eeg": Extra("the workload eegmmidb", {"mne": "mne"}),
    "workflow": Extra(
        "figures, the report and the Snakemake workflow",
        {
            "snakemake": "snakemake",
            "jinja2": "jinja2",
            "pandas": "pandas",
            "matplotlib": "matplotlib",
            "seaborn": "seaborn",
        },
    ),
    "gpu": Extra("the simulator fused on a GPU", {"triton": "triton"}, "triton-extra"),
    "bench": Extra(
        "the outside simulators of `ketscale bench simulators`",
        {"jax": "jax", "tensorcircuit": "tensorcircuit-ng", "deepquantum": "deepquantum"},
        "bench-extra",
    ),
}


def remedy(name: str) -> str:
    """What to type to get the extra `name`."""
    return f"pip install 'ketscale[{name}]' (in a checkout: make {EXTRAS[name].target})"


@contextmanager
def needed_for(purpose: str) -> Iterator[None]:
    """Wrap imports, direct or indirect, of packages of an extra; `purpose` says what needs them.

    The garbage collector is off meanwhile.

    Raises:
        UserError: a package is not installed; names it, the extra and the Makefile target.
    """
    try:
        with uncollected():
            yield
    except ModuleNotFoundError as missing:
        module = (missing.name or "").partition(".")[0]
        for name, extra in EXTRAS.items():
            if module in extra.modules:
                raise UserError(f"{purpose} needs {extra.modules[module]}: {remedy(name)}") from None
        raise
