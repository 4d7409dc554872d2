"""Optional packages: which extra installs each, and the error when one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ketscale.errors import UserError
from ketscale.process import uncollected


class Extra(NamedTuple):
    """An extra of pyproject.toml.

    enables: what works with it. modules: those that KetScale imports from it, each with its distribution.
    target: the Makefile target that installs it into a checkout's environment.
    """

    enables: str
    modules: dict[str, str]
    target: str = "setup"


EXTRAS = {
    "images": Extra(
        "workloads of images",
        {
            "transformers": "transformers",
            "huggingface_hub": "huggingface_hub",
            "sklearn": "scikit-learn",
            "PIL": "pillow",
            "pooch": "pooch",
        },
    ),
    "estimators": Extra(
        "estimators of scikit-learn, support vector machines, and the baselines of workloads",
        {"sklearn": "scikit-learn"},
    ),
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
    "jax": Extra(
        "circuits as functions of JAX, `ketscale.jax`, and the simulator default.qubit-jit", {"jax": "jax"}
    ),
    "mpi": Extra("the backend mpi", {"mpi4py": "mpi4py"}),
    "eeg": Extra(
        "the workload eegmmidb, and the baseline of trials, CSP with LDA",
        {"mne": "mne", "sklearn": "scikit-learn"},
    ),
    "workflow": Extra(
        "tables, figures, the report and the Snakemake workflow",
        {
            "snakemake": "snakemake",
            "jinja2": "jinja2",
            "pandas": "pandas",
            "matplotlib": "matplotlib",
            "seaborn": "seaborn",
        },
    ),
    "tensorboard": Extra(
        "`ketscale export --to tensorboard`", {"tensorboard": "tensorboard"}, "trackers-extra"
    ),
    "mlflow": Extra(
        "`ketscale export --to mlflow`",
        {"mlflow": "mlflow-skinny", "sqlalchemy": "sqlalchemy", "alembic": "alembic"},
        "trackers-extra",
    ),
    "gpu": Extra("the simulator fused on a GPU", {"triton": "triton"}, "triton-extra"),
    "bench": Extra(
        "the outside simulators of `ketscale bench simulators`",
        {
            "jax": "jax",
            "tensorcircuit": "tensorcircuit-ng",
            "deepquantum": "deepquantum",
            "pyqtorch": "pyqtorch",
            "qulacs": "qulacs",
            "psutil": "psutil",
        },
        "bench-extra",
    ),
}


def remedy(name: str) -> str:
    """What to type to get the extra `name`."""
    return f"pip install 'ketscale[{name}]' (in a checkout: make {EXTRAS[name].target})"


@contextmanager
def needed_for(purpose: str, extra: str = "") -> Iterator[None]:
    """Wrap imports, direct or indirect, of packages of an extra; `purpose` says what needs them.

    extra: the one to name if several have the package. The garbage collector is off meanwhile.

    Raises:
        UserError: a package is not installed; names it, the extra and the Makefile target.
    """
    try:
        with uncollected():
            yield
    except ModuleNotFoundError as missing:
        said = missing_in_words(missing, purpose, extra)
        if said is None:
            raise
        raise UserError(said) from None


def missing_in_words(missing: ModuleNotFoundError, purpose: str, extra: str = "") -> str | None:
    """The extra that has a module that `purpose` needs, as for `needed_for`; None for a module of no extra."""
    module = (missing.name or "").partition(".")[0]
    having = [name for name, one in EXTRAS.items() if module in one.modules]
    if not having:
        return None
    chosen = extra if extra in having else having[0]
    return f"{purpose} needs {EXTRAS[chosen].modules[module]}: {remedy(chosen)}"
