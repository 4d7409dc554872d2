"""`superposition_transformer`: the words before, in superposition, turned towards the next word.

A sentence's transition i has the state psi_i, proportional to the sum of t_j (x) t_j over the words t_j before
it, the current word z_i and the next one x_i. With trainable unitaries W and V on two qubits each, and the M
transitions of a sentence in superposition, the probability of all zeros is

    P = |1/M sum_i (z_i (x) x_i)* (W (x) V) psi_i|^2,

and the loss -ln(P + 1e-12). The sum over i touches W (x) V only once: with T = 1/M sum_i (z_i (x) x_i) psi_i^T,
256 numbers of a sentence that no angle changes, P = |sum_kl T_kl (W (x) V)_kl|^2.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import nn

from ketscale.circuits import Angles, Circuit, Column, Gate
from ketscale.simulators.base import Simulator

ANGLES = 24  # of a layer of V or of W
TINY = 1e-12


class Batch(NamedTuple):
    """The transitions of sentences, one after the other.

    psi: (transitions, 16). target: z_i (x) x_i, (transitions, 16). sentence: which sentence each is of, int64.
    closed: T of each sentence, (sentences, 16, 16).
    """

    psi: torch.Tensor
    target: torch.Tensor
    sentence: torch.Tensor
    closed: torch.Tensor

    @classmethod
    def of(cls, vectors: list[torch.Tensor]) -> Batch:
        """From the words' vectors (words, 4) of each sentence."""
        parts = [_transitions(v) for v in vectors]
        psi, target = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        sentence = torch.repeat_interleave(torch.tensor([len(p) for p, _ in parts]))
        closed = torch.stack([target.T @ psi / len(psi) for psi, target in parts])
        return cls(psi, target, sentence, closed)

    @property
    def counts(self) -> torch.Tensor:
        """Transitions of each sentence."""
        return torch.bincount(self.sentence, minlength=len(self.closed))

    def select(self, sentences: torch.Tensor) -> Batch:
        """Some sentences, in that order."""
        place = torch.full((len(self.closed),), -1, device=sentences.device)
        place[sentences] = torch.arange(len(sentences), device=sentences.device)
        mine = place[self.sentence]
        chosen = mine >= 0
        return Batch(self.psi[chosen], self.target[chosen], mine[chosen], self.closed[sentences])


def _transitions(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """psi and target of a sentence's transitions (words - 1, 16)."""
    pairs = torch.einsum("wa,wb->wab", vectors, vectors).flatten(1)
    sums = pairs[:-1].cumsum(0)
    psi = sums / torch.linalg.vector_norm(sums, dim=1, keepdim=True)
    return psi, torch.einsum("wa,wb->wab", vectors[:-1], vectors[1:]).flatten(1)


def pair_gates(wires: tuple[int, int], first: int, layers: int) -> list[Gate]:
    """V or W: layers of a block on (a, b), then one on (b, a), their angles from weight `first` on.

    A block is RX, RY and RZ on its first wire and on its second, CNOT from the first to the second, and both again.
    """
    gates: list[Gate] = []
    for block in range(2 * layers):
        a, b = wires if block % 2 == 0 else wires[::-1]
        for half in range(2):
            start = first + 12 * block + 6 * half
            for i, wire in enumerate((a, b)):
                gates += [
                    Gate(name, (wire,), (Column("weight", start + 3 * i + k),))
                    for k, name in enumerate(("RX", "RY", "RZ"))
                ]
            gates.append(Gate("CNOT", (a, b)))
    return gates


def whole_circuit(layers: int) -> Circuit:
    """W on wires 0 and 1, V on 2 and 3; the weights are V's angles, then W's."""
    count = ANGLES * layers
    return Circuit(4, (*pair_gates((2, 3), 0, layers), *pair_gates((0, 1), count, layers)))


def pair_unitary(angles: torch.Tensor, layers: int) -> torch.Tensor:
    """The matrix of `pair_gates`, complex (..., 4, 4), from its angles (..., 24 layers)."""
    half = angles.unflatten(-1, (4 * layers, 2, 3)) / 2
    cosine, sine = torch.cos(half), torch.sin(half)
    # RZ RY RX of each wire, written out: [[u, -conj(v)], [v, conj(u)]].
    (cx, cy, cz), (sx, sy, sz) = cosine.unbind(-1), sine.unbind(-1)
    p = torch.complex(cy * cx, sy * sx)
    q = torch.complex(sy * cx, -cy * sx)
    turn = torch.complex(cz, -sz)
    u, v = turn * p, turn.conj() * q
    single = torch.stack([torch.stack([u, -v.conj()], -1), torch.stack([v, u.conj()], -1)], -2)
    one, two = single.unbind(-3)
    both = torch.einsum("...ij,...kl->...ikjl", one, two).flatten(-2).flatten(-3, -2)
    # In every second block the first wire is the less significant bit: its matrices are turned round.
    swapped = (0, 2, 1, 3)
    cnot = both.new_zeros(4, 4)
    cnot[(0, 1, 2, 3), (0, 1, 3, 2)] = 1
    result = torch.eye(4, dtype=both.dtype, device=both.device)
    for step in range(4 * layers):
        matrix = cnot @ both[..., step, :, :]
        if step // 2 % 2:
            matrix = matrix[..., swapped, :][..., :, swapped]
        result = matrix @ result
    return result


def closed_form(weights: torch.Tensor, batch: Batch, layers: int) -> torch.Tensor:
    """P of each sentence, (..., sentences), from angles (..., 48 layers)."""
    v, w = (pair_unitary(part, layers) for part in weights.split(ANGLES * layers, dim=-1))
    unitary = torch.einsum("...ac,...bd->...abcd", w, v).flatten(-4)
    real = unitary.real @ batch.closed.flatten(1).T
    imaginary = unitary.imag @ batch.closed.flatten(1).T
    return real.square() + imaginary.square()


class ShiftedClosedForm(torch.autograd.Function):
    """-ln(P + 1e-12) of sentences, with its gradient by parameter-shift: on P, then through the logarithm.

    P has frequency 1 in every angle, so (P(+) - P(-)) / 2 with shifts of pi/2 is its derivative, and that of the loss
    is -(P(+) - P(-)) / (2 (P + 1e-12)). The rule applied to -ln P itself would be wrong: it has all frequencies.

    share: (rank, ranks). A rank evaluates its part of the tasks (sentence, angle, sign) and gives the part of the
    gradient that they make, and the losses of its part of the sentences; summed over ranks, both are whole.
    """

    @staticmethod
    def forward(
        ctx: Any, weights: torch.Tensor, batch: Batch, layers: int, share: tuple[int, int]
    ) -> torch.Tensor:
        probabilities = closed_form(weights, batch, layers)
        ctx.save_for_backward(weights, probabilities)
        ctx.batch, ctx.layers, ctx.share = batch, layers, share
        rank, ranks = share
        mine = torch.arange(len(probabilities), device=weights.device) % ranks == rank
        return -torch.log(probabilities + TINY) * mine

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        weights, probabilities = ctx.saved_tensors
        rank, ranks = ctx.share
        variants = 2 * len(weights)
        tasks = torch.arange(rank, variants * len(probabilities), ranks, device=weights.device)
        needed, place = (tasks % variants).unique(return_inverse=True)
        sign = 1.0 - 2.0 * (needed % 2).to(weights.dtype)
        shifts = weights.new_zeros(len(needed), len(weights))
        shifts[torch.arange(len(needed)), needed // 2] = sign * math.pi / 2
        shifted = closed_form(weights + shifts, ctx.batch, ctx.layers)
        sentence = tasks // variants
        factor = -cotangent / (2 * (probabilities + TINY))
        parts = sign[place] * shifted[place, sentence] * factor[sentence]
        gradient = torch.zeros_like(weights).index_add(0, needed[place] // 2, parts)
        return gradient, None, None, None


class SuperpositionTransformer(nn.Module):
    """P of sentences; 48 angles a layer, uniform in [0, 2 pi) at the start."""

    def __init__(self, layers: int, simulator: Simulator | None = None) -> None:
        super().__init__()
        self.layers, self.simulator = layers, simulator
        self.weights = nn.Parameter(2 * math.pi * torch.rand(2 * ANGLES * layers))
        self.circuit = whole_circuit(layers)

    def forward(self, batch: Batch) -> torch.Tensor:
        """P of each sentence, by the closed form, or by a simulator where there is one."""
        if self.simulator is None:
            return closed_form(self.weights, batch, self.layers)
        nothing = self.weights.new_empty(len(batch.psi), 0)
        psi = torch.complex(batch.psi, torch.zeros_like(batch.psi))
        final = self.simulator.state(self.circuit, Angles(nothing, self.weights), psi)
        overlaps = torch.view_as_real((final * batch.target).sum(1))
        means = overlaps.new_zeros(len(batch.closed), 2).index_add(0, batch.sentence, overlaps)
        return (means / batch.counts[:, None]).square().sum(1)
