"""The settings of a simulator of circuits; imports nothing heavy, for the config's checks at every start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from msgspec import Meta

from ketscale.config import Simulator
from ketscale.engines.circuits.methods import BOUND_TO, SUPPORTED, USUAL, Method


class CircuitSimulator(Simulator, frozen=True, kw_only=True):
    """How a circuit is evaluated, differentiated and fed a batch, and where."""

    devices: ClassVar[tuple[str, ...]] = tuple(dict.fromkeys(method.device for method in sorted(SUPPORTED)))

    device: Annotated[
        Literal["default.qubit", "fused", "lightning.gpu", "lightning.qubit", "qiskit"],
        Meta(description="What evaluates the circuit"),
    ]
    gradient: Annotated[
        Literal["backprop", "adjoint", "parameter-shift"], Meta(description="How it is differentiated")
    ]
    batching: Annotated[
        Literal["broadcast", "loop"],
        Meta(description="broadcast: one call for the batch; loop: sample by sample"),
    ]
    placement: Annotated[
        Literal["model", "cpu", "gpu"],
        Meta(description="model: the device of the model; else the circuit alone is moved"),
    ] = "model"
    route: (
        Annotated[
            Literal["auto", "sweep", "matrix", "literal"],
            Meta(
                description="How fused evaluates a circuit. sweep: gates swept over states; matrix: the part behind the "
                "last input as one matrix; auto: the cheaper of these by its model (the default); literal: gate by gate "
                "with no algebra"
            ),
        ]
        | None
    ) = None

    @classmethod
    def usual(cls, name: str) -> Self:
        """Those of a simulator's usual name, one of `methods.USUAL`."""
        return cls(**USUAL[name]._asdict())

    @property
    def method(self) -> Method:
        """Device, gradient and batching."""
        return Method(self.device, self.gradient, self.batching)

    @property
    def needs_gpu(self) -> bool:
        """Whether the circuits run on a GPU whatever the backend."""
        return self.placement == "gpu" or BOUND_TO.get(self.device) == "cuda"

    def faults(self) -> Iterator[str]:
        """A combination that the device does not have."""
        if self.method not in SUPPORTED:
            able = sorted(f"{m.gradient} with {m.batching}" for m in SUPPORTED if m.device == self.device)
            yield f"{self.device} cannot do {self.gradient} with {self.batching} batching; it can do {', '.join(able)}"
        if self.route is not None and self.device != "fused":
            yield f"route: only fused has routes, and this is {self.device}; leave it out"
