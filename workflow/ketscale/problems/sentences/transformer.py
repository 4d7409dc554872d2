"""`superposition_transformer`: the words so far, in superposition, turned towards the next word.

With trainable unitaries V and W on two qubits each, and the M transitions of a sentence in superposition, the
probability of all zeros is

    P = |1/M sum_i (z_i (x) x_i)* (W (x) V) psi_i|^2,

and the loss of the sentence is -ln(P + 1e-12). The state psi_i represents the words so far, z_i the current word and
x_i the next one (see `Transitions`). A `Likelihood` evaluates P.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ketscale.engines.circuits.circuit import Circuit, Column, Gate

ANGLES = 24  # in a layer of V or of W
QUBITS = 4
TINY = 1e-12
PAIR = 16  # entries of a product of two word vectors


class SuperpositionTransformer(nn.Module):
    """The angles of V, then those of W, 24 a layer for each, in radians; they start uniform in [0, 2 pi)."""

    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        self.layers = layers
        self.weights = nn.Parameter(2 * math.pi * torch.rand(2 * ANGLES * layers))


def loss(probability: torch.Tensor) -> torch.Tensor:
    """-ln(P + 1e-12), elementwise."""
    return -torch.log(probability + TINY)


def pair_gates(wires: tuple[int, int], first: int, layers: int) -> list[Gate]:
    """V or W: each layer is a block on (a, b), then one on (b, a); the angles start at weight `first`.

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


def sentence_circuit(layers: int) -> Circuit:
    """W (x) V on four wires: W on 1 and 0, V on 3 and 2, where wire 0 is the most significant bit.

    The first wire of each pair is the less significant one, by the qubit order in which this model was published.
    """
    count = ANGLES * layers
    return Circuit(QUBITS, (*pair_gates((3, 2), 0, layers), *pair_gates((1, 0), count, layers)))


def pair_unitary(angles: torch.Tensor, layers: int) -> torch.Tensor:
    """The matrix of `pair_gates`, complex (..., 4, 4), from its angles (..., 24 * layers).

    The first wire is the less significant bit.
    """
    half = angles.unflatten(-1, (4 * layers, 2, 3)) / 2
    (cx, cy, cz), (sx, sy, sz) = torch.cos(half).unbind(-1), torch.sin(half).unbind(-1)
    # RZ RY RX of each wire is [[u, -conj(v)], [v, conj(u)]].
    u = torch.complex(cz, -sz) * torch.complex(cy * cx, sy * sx)
    v = torch.complex(cz, sz) * torch.complex(sy * cx, -cy * sx)
    single = torch.stack([u, -v.conj(), v, u.conj()], -1).unflatten(-1, (2, 2))
    one, two = single.unbind(-3)
    # The block's first wire is the less significant bit; CNOT swaps the rows 1 and 3.
    both = torch.einsum("...ij,...kl->...kijl", one, two)
    both = torch.einsum("...kijl->...kilj", both).flatten(-4, -3).flatten(-2)
    both = both[..., (0, 3, 2, 1), :]
    # In every second block the wires are exchanged: bits 01 and 10 swap.
    swap = (0, 2, 1, 3)
    result: torch.Tensor | None = None
    for step in range(4 * layers):
        matrix = both[..., step, :, :]
        if step // 2 % 2:
            matrix = matrix[..., swap, :][..., swap]
        result = matrix if result is None else matrix @ result
    assert result is not None
    return result


def sentence_unitary(weights: torch.Tensor, layers: int) -> torch.Tensor:
    """W (x) V, complex (..., 16, 16), from all angles (..., 48 * layers)."""
    v, w = (pair_unitary(part, layers) for part in weights.split(ANGLES * layers, dim=-1))
    return torch.einsum("...ac,...bd->...abcd", w, v).flatten(-4, -3).flatten(-2)


@dataclass(frozen=True)
class Transitions:
    """The transitions of all sentences, one after the other, in fp64.

    psi: (n, 16), unit vectors proportional to the sum of t_j (x) t_j over the words so far, the current one included.
    target: (n, 16), z (x) x of the current word z and the next word x.
    sentence: int64 (n,), the sentence of each transition, ascending.
    """

    psi: torch.Tensor
    target: torch.Tensor
    sentence: torch.Tensor

    @classmethod
    def of(cls, sentences: Sequence[torch.Tensor]) -> Transitions:
        """From the unit vectors (words, 4) of each sentence, which has at least two words."""
        parts = [_transitions(vectors.double()) for vectors in sentences]
        psi, target = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        counts = torch.tensor([len(part) for part, _ in parts])
        return cls(psi, target, torch.repeat_interleave(torch.arange(len(parts)), counts))

    @property
    def counts(self) -> torch.Tensor:
        """The number of transitions of each sentence, (sentences,)."""
        return torch.bincount(self.sentence)

    @property
    def positions(self) -> torch.Tensor:
        """The position of each transition in its sentence, 0, 1, ..., (n,)."""
        counts = self.counts
        return torch.arange(len(self.psi)) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)

    def closed(self) -> torch.Tensor:
        """T = 1/M sum_i target_i psi_i^T for each sentence of M transitions, (sentences, 16, 16)."""
        products = torch.einsum("na,nb->nab", self.target, self.psi)
        sums = products.new_zeros(len(self.counts), PAIR, PAIR).index_add(0, self.sentence, products)
        return sums / self.counts[:, None, None]

    def of_sentence(self, sentence: int) -> tuple[torch.Tensor, torch.Tensor]:
        """psi and target of one sentence, (M, 16) each."""
        own = self.sentence == sentence
        return self.psi[own], self.target[own]


def _transitions(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    pairs = torch.einsum("wa,wb->wab", vectors, vectors).flatten(1)
    sums = pairs[:-1].cumsum(0)
    psi = sums / torch.linalg.vector_norm(sums, dim=1, keepdim=True)
    return psi, torch.einsum("wa,wb->wab", vectors[:-1], vectors[1:]).flatten(1)
