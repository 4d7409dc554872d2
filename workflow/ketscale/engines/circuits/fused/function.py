"""One of the functions that a plan is compiled to; it reads its arguments by name."""

from __future__ import annotations

from llvmlite import ir

from ketscale.engines.circuits.fused.plan import ARGUMENTS, SweepPlan
from ketscale.engines.compiled.vector import Value, Writer


class Function:
    """A function that is being written; it finds `ARGUMENTS` by name."""

    def __init__(self, module: ir.Module, name: str, plan: SweepPlan) -> None:
        self.plan = plan
        self.w = Writer(module, name, plan.lanes, plan.double)

    def argument(self, name: str, pointer: bool = False) -> Value:
        """The value of an argument: a 64-bit integer, or an address."""
        return self.w.argument(ARGUMENTS.index(name), pointer)

    def argument_address(self, name: str) -> Value:
        """The address of an argument, for a counter that threads share."""
        return self.w.argument_address(ARGUMENTS.index(name))
