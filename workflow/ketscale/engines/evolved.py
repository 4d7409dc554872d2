"""What evolved a quantum system, as a record keeps it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Kernel = Literal["dense", "chain"]
CodeKind = Literal["compiled", "table", "torch", "loop"]


class Evolved(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What evolved a quantum system: that of pulses or control at the end of the training."""

    # fmt: off
    kernel: Annotated[Kernel, Meta(description="dense: the states of the whole system; chain: gates on sites and pairs")]
    method: Annotated[str, Meta(description="The propagator or integrator")]
    code: Annotated[CodeKind, Meta(description="compiled: machine code for the levels of its sites; table: machine "
        "code that reads a table of the system; torch: torch's operators; loop: these, one task after the other")]
    states: Annotated[int, Meta(ge=2, description="The system's product states")]
    steps: Annotated[Annotated[int, Meta(ge=0, le=2 ** 63 - 1)] | None, Meta(description="The number in a segment "
        "(dense) or in the pulse (chain); null where each segment's norm sets it, or no pulse was possible any more")]
    # fmt: on
