"""The simulators under test by name; each is imported only when it is made."""

from __future__ import annotations

import torch

from ketscale.bench.cases import Subject
from ketscale.bench.kronecker import Kronecker
from ketscale.bench.selection import BY_HAND, FLOOR, GROUPS, OWN, PENNYLANE, QNODES, ROUTES, Selection
from ketscale.errors import UserError


def create(name: str, device: torch.device) -> Subject:
    """The simulator of this name.

    Raises:
        UserError: it is not installed.
    """
    if name in (*OWN, *ROUTES, *PENNYLANE):
        from ketscale.bench.own import Own

        return Own(name, device)
    if name in QNODES:
        from ketscale.bench.qnodes import QNodes

        return QNodes(name, device)
    if name in GROUPS:
        from ketscale.bench.groups import Groups

        return Groups(name, device)
    if name == BY_HAND:
        return Kronecker(device)
    if name == FLOOR:
        from ketscale.bench.floor import Floor

        return Floor()
    if name == "jax":
        from ketscale.bench.jax_state import JaxState

        return JaxState(device.type)
    if name == "tensorcircuit":
        from ketscale.bench.tensorcircuit import TensorCircuit

        return TensorCircuit(device.type)
    from ketscale.bench.deepquantum import DeepQuantum

    return DeepQuantum(device)


def installed(selection: Selection, device: torch.device) -> dict[str, Subject | str]:
    """The simulators of a selection; why there is none for one that is not here and was not asked for by name.

    Raises:
        UserError: one that was asked for by name is not installed.
    """
    found: dict[str, Subject | str] = {}
    for name in selection.names:
        try:
            found[name] = create(name, device)
        except Exception as error:  # also an installation that is broken in its own way
            if selection.asked:
                raise
            found[name] = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return found


def reference() -> tuple[str, Subject]:
    """What simulators have to agree with, in double precision on the CPU: default.qubit, or `kronecker` without it."""
    cpu = torch.device("cpu")
    try:
        return "default.qubit", create("default.qubit", cpu)
    except UserError:
        return BY_HAND, Kronecker(cpu)
