"""The plan of a compiled kernel: the task it is made for, and the layout of its buffers.

A *vector* holds `lanes` floats: 2**lane_bits amplitudes (the lowest bits of a basis index) of each of
`samples` samples. A *tile* is the state of that many samples: 2**(n - lane_bits) vectors, or pairs of
them (real, imaginary). Everything that is computed for a tile stays in the cache of one core.
A *group* is the samples of one set of weights; no tile has samples of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast

import torch

from ketscale.engines.circuits.fused.program import Angle, Program, Rotation
from ketscale.engines.circuits.fused.schedule import Pass, Phases, Schedule, reversed_passes, schedule

Wanted = Literal["input", "weight", "initial", "mix"]


def wanted_of(**tensors: torch.Tensor | None) -> tuple[Wanted, ...]:
    """The tensors by which a call must be differentiable, in their order."""
    if not torch.is_grad_enabled():
        return ()
    found = (name for name, tensor in tensors.items() if tensor is not None and tensor.requires_grad)
    return cast(tuple[Wanted, ...], tuple(found))


@dataclass(frozen=True)
class SweepPlan:
    """One program with one layout, precision and set of wanted gradients.

    lanes: floats in a vector of this machine. lane_bits: how many bits of a basis index are in a vector's lanes.
    widths: dimensions of a block in registers, in the forward and in the backward pass.
    from_zero: the initial state is |0...0> instead of a given one.
    partners: for each amplitude of the computed state the one that the reversal of all wires puts in its place, if a
        superposition with the reversed state is measured (`mixing`); each sample then has a lane of its own.
    """

    program: Program
    input_columns: int
    weight_columns: int
    double: bool
    lanes: int
    lane_bits: int
    widths: tuple[int, int]
    from_zero: bool
    wanted: tuple[Wanted, ...]
    literal: bool = False
    partners: tuple[int, ...] | None = None

    @property
    def samples(self) -> int:
        """Samples in a tile."""
        return self.lanes >> self.lane_bits

    @property
    def vectors(self) -> int:
        """Vectors (pairs, if the state is complex) in a tile."""
        return 1 << (self.program.qubits - self.lane_bits)

    @property
    def real(self) -> bool:
        """Whether all amplitudes are real, and imaginary parts are left out."""
        return self.from_zero and self.program.real and not self.literal and self.partners is None

    @property
    def state_vectors(self) -> int:
        """Vectors of a tile's state."""
        return self.vectors * (1 if self.real else 2)

    @cached_property
    def forward(self) -> Schedule:
        """The schedule of the forward pass."""
        width = min(self.widths[0], self.program.qubits - self.lane_bits)
        return schedule(self.program, width, self.lane_bits, self.from_zero, self.literal)

    @cached_property
    def backward(self) -> tuple[Pass, ...]:
        """The passes over the state in the backward pass, without the last ones if no wanted gradient needs them."""
        width = min(self.widths[1], self.program.qubits - self.lane_bits)
        passes = reversed_passes(self.forward, width, self.lane_bits)
        if "initial" in self.wanted or any(self.wants(r) for r in self.forward.product):
            return passes
        needed = [
            i for i, p in enumerate(passes) if any(self.wants(r) for s in p.steps for r in rotations(s))
        ]
        return passes[: max(needed, default=-1) + 1]

    def wants(self, rotation: Rotation) -> bool:
        """Whether the gradient of the rotation's angle is wanted."""
        return rotation.angle.kind in self.wanted

    @cached_property
    def steps(self) -> tuple[Rotation | Phases, ...]:
        """All rotations and tables of phases, in the order of the forward pass."""
        steps = (*self.forward.product, *(s for p in self.forward.passes for s in p.steps))
        return tuple(s for s in steps if isinstance(s, (Rotation, Phases)))

    @cached_property
    def sample_angles(self) -> tuple[Angle, ...]:
        """Distinct angles that differ between samples."""
        return self._angles(shared=False)

    @cached_property
    def shared_angles(self) -> tuple[Angle, ...]:
        """Distinct angles of single rotations that all samples share."""
        return self._angles(shared=True)

    def _angles(self, shared: bool) -> tuple[Angle, ...]:
        singles = (s.angle for s in self.steps if isinstance(s, Rotation))
        return tuple(dict.fromkeys(angle for angle in singles if angle.shared == shared))

    @cached_property
    def tables(self) -> tuple[Phases, ...]:
        """The tables of phases."""
        return tuple(s for s in self.steps if isinstance(s, Phases))

    @cached_property
    def differentiated(self) -> tuple[Rotation, ...]:
        """Rotations whose angle's gradient is wanted; each has an accumulator, which equal rotations share."""
        return tuple(dict.fromkeys(r for s in self.steps for r in rotations(s) if self.wants(r)))

    # --- buffers ---

    @property
    def mix_size(self) -> int:
        """Floats of a superposition's coefficients and constant."""
        return 0 if self.partners is None else 4 + 2 * len(self.partners)

    @property
    def table_size(self) -> int:
        """Floats of the real (or imaginary) part of a table."""
        return int(max(2**self.program.qubits, self.lanes))

    @property
    def shared_size(self) -> int:
        """Floats that `prepare` writes for a group: (cos, sin, -sin) of each shared angle, then the tables."""
        return self.shared_tables + 2 * self.table_size * len(self.tables)

    @property
    def shared_stride(self) -> int:
        """Floats between what `prepare` writes for one group and for the next; a whole number of vectors."""
        return -(-self.shared_size // self.lanes) * self.lanes

    @property
    def shared_tables(self) -> int:
        """The start of the tables, in floats; a whole number of vectors."""
        return -(-3 * len(self.shared_angles) // self.lanes) * self.lanes

    @property
    def columns(self) -> int:
        """Floats of a sample's result."""
        words = self.program.words
        return self.amplitude_floats if words is None else len(words)

    @property
    def amplitude_floats(self) -> int:
        """Floats of a sample's complex amplitudes."""
        return 2 << self.program.qubits

    @cached_property
    def scratch(self) -> dict[str, int]:
        """The size of each buffer of a worker, in vectors."""
        return {
            "columns": self.input_columns,
            "turns": 3 * len(self.sample_angles),
            "words": len(self.program.words or ()),
            "gradients": len(self.differentiated),
            "sums": 0 if self.partners is None else 4,
            "psi": self.state_vectors if self.wanted or self.partners else 0,
            "adjoint": self.state_vectors if self.wanted else 0,
        }

    @property
    def scratch_vectors(self) -> int:
        """Vectors of all buffers of a worker."""
        return sum(self.scratch.values())


def rotations(step: object) -> tuple[Rotation, ...]:
    """The rotations of a step."""
    if isinstance(step, Phases):
        return step.rotations
    return (step,) if isinstance(step, Rotation) else ()
