"""The simulators under test by name; each is imported only when it is made."""

from __future__ import annotations

from ketscale.bench.cases import Subject
from ketscale.bench.selection import FLOOR, OUTSIDE, Selection
from ketscale.errors import UserError


def create(name: str) -> Subject:
    """The simulator of this name.

    Raises:
        UserError: it is not installed.
    """
    if name == FLOOR:
        from ketscale.bench.floor import Floor

        return Floor()
    if name not in OUTSIDE:
        from ketscale.bench.own import Own

        return Own(name)
    if name == "tensorcircuit":
        from ketscale.bench.tensorcircuit import TensorCircuit

        return TensorCircuit()
    from ketscale.bench.deepquantum import DeepQuantum

    return DeepQuantum()


def installed(selection: Selection) -> dict[str, Subject | None]:
    """The simulators of a selection; None for one that is not installed and was not asked for by name.

    Raises:
        UserError: one that was asked for by name is not installed.
    """
    found: dict[str, Subject | None] = {}
    for name in selection.simulators:
        try:
            found[name] = create(name)
        except UserError:
            if selection.asked or name not in OUTSIDE:
                raise
            found[name] = None
    return found
