"""Clifford frames: permutations and phases that are tracked instead of being applied to a state.

A state is represented as C|phi>, where C is a product of CNOT, CZ, SWAP, S and Pauli gates. A rotation of the true
state about a Pauli word P is a rotation of |phi> about C* P C, which is a Pauli word again. So these gates cost
nothing while a circuit runs (Gottesman, arXiv:quant-ph/9807006). C only permutes basis states and multiplies them by
powers of i: `CliffordFrame.permutation` gives both, for the end of the circuit. Gates that do the same and are not
Clifford, such as Toffoli, take no word to a word. So they begin a new frame, after a *move* of the state's amplitudes.

Words are pairs of bit masks over basis indices; the bit of wire w is n - 1 - w (wire 0 is the most
significant bit).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ketscale.engines.circuits.circuit import Gate


class Pauli(NamedTuple):
    """i**power X**x Z**z: first Z on the bits of mask `z`, then X on the bits of mask `x`."""

    x: int
    z: int
    power: int = 0

    def __mul__(self, other: Pauli) -> Pauli:  # type: ignore[override]
        sign = 2 * ((self.z & other.x).bit_count() % 2)
        return Pauli(self.x ^ other.x, self.z ^ other.z, (self.power + other.power + sign) % 4)

    @property
    def sign(self) -> int:
        """+1 or -1: how this Hermitian word differs from the product of its letters X, Y = iXZ and Z."""
        return 1 if (self.power - (self.x & self.z).bit_count()) % 4 == 0 else -1


def word(letters: str) -> Pauli:
    """The word spelt by `letters`, one for each wire, e.g. 'ZIXY'."""
    masks = [int("".join("1" if letter in set_ else "0" for letter in letters), 2) for set_ in ("XY", "YZ")]
    return Pauli(masks[0], masks[1], letters.count("Y") % 4)


# G* P G for P = X and Z on each wire of a Clifford gate G, as words over the gate's own wires.
CONJUGATES: dict[str, dict[str, str]] = {
    "PauliX": {"X": "X", "Z": "-Z"},
    "PauliY": {"X": "-X", "Z": "-Z"},
    "PauliZ": {"X": "-X", "Z": "Z"},
    "S": {"X": "-Y", "Z": "Z"},
    "CNOT": {"XI": "XX", "IX": "IX", "ZI": "ZI", "IZ": "ZZ"},
    "CZ": {"XI": "XZ", "IX": "ZX", "ZI": "ZI", "IZ": "IZ"},
    "SWAP": {"XI": "IX", "IX": "XI", "ZI": "IZ", "IZ": "ZI"},
}

Indices = NDArray[np.int64]

# A gate maps the basis state of bits a (and b) to i**power times another one: the power, and its bits.
MONOMIALS: dict[str, Callable[..., tuple[Indices | int, ...]]] = {
    "PauliX": lambda a: (0, 1 - a),
    "PauliY": lambda a: (1 + 2 * a, 1 - a),
    "PauliZ": lambda a: (2 * a, a),
    "S": lambda a: (a, a),
    "CNOT": lambda a, b: (0, a, a ^ b),
    "CZ": lambda a, b: (2 * a * b, a, b),
    "SWAP": lambda a, b: (0, b, a),
}


def moves(gate: Gate) -> bool:
    """Whether a gate maps basis states to others, times powers of i, and is not of `CONJUGATES`."""
    return gate.order is not None or (bool(gate.controls) and gate.base in MONOMIALS)


def image(gate: Gate, index: Indices, qubits: int) -> tuple[Indices, Indices]:
    """The power of i for each basis state, and where a gate of `MONOMIALS`, with any controls, or a permutation moves it."""
    shifts = [qubits - 1 - w for w in gate.wires]
    if gate.order is not None:
        own = sum((index >> s & 1) << at for at, s in enumerate(reversed(shifts)))
        after = own ^ np.array(gate.order)[own]
        return np.zeros_like(index), index ^ sum(
            (after >> at & 1) << s for at, s in enumerate(reversed(shifts))
        )
    count = len(gate.controls)
    bits = [index >> s & 1 for s in shifts[count:]]
    power, *new = MONOMIALS[gate.base](*bits)
    changed = sum((one ^ other) << s for one, other, s in zip(bits, new, shifts[count:], strict=True))
    if count:
        mask = sum(1 << s for s in shifts[:count])
        on = index & mask == mask
        power, changed = power * on, changed * on
    return power + np.zeros_like(index), index ^ changed


class CliffordFrame:
    """The operator C that maps the computed state to the true one, since the last move."""

    def __init__(self, qubits: int) -> None:
        self.qubits = qubits
        self._begin()
        # What the state's amplitudes still have to do.
        self._pending: tuple[Indices, Indices] | None = None

    def _begin(self) -> None:
        self._gates: list[Gate] = []
        bits = [1 << (self.qubits - 1 - w) for w in range(self.qubits)]
        self._images = {("X", w): Pauli(bit, 0) for w, bit in enumerate(bits)}
        self._images |= {("Z", w): Pauli(0, bit) for w, bit in enumerate(bits)}

    def absorb(self, gate: Gate) -> None:
        """Replace C by G C for a gate G of `CONJUGATES`."""
        self._gates.append(gate)
        changed = {}
        for before, after in CONJUGATES[gate.name].items():
            at = next(i for i, letter in enumerate(before) if letter != "I")
            spelt = ["I"] * self.qubits
            for letter, wire in zip(after.lstrip("-"), gate.wires, strict=True):
                spelt[wire] = letter
            image = self.pull_back(word("".join(spelt)))
            key = before[at], gate.wires[at]
            changed[key] = image * Pauli(0, 0, 2) if after.startswith("-") else image
        self._images |= changed

    def move(self, gate: Gate) -> None:
        """Begin a new frame after a gate that `moves`."""
        self._gates.append(gate)
        self._pending = self.permutation()
        self._begin()

    def take_pending(self) -> tuple[Indices, Indices] | None:
        """The move that is still to be made, as of `permutation`, which the state's amplitudes then have made."""
        permutation, self._pending = self._pending, None
        return permutation

    def pull_back(self, pauli: Pauli) -> Pauli:
        """C* P C."""
        image = Pauli(0, 0, pauli.power)
        for letter, mask in (("X", pauli.x), ("Z", pauli.z)):
            for wire in range(self.qubits):
                if mask >> (self.qubits - 1 - wire) & 1:
                    image = image * self._images[letter, wire]
        return image

    def permutation(self) -> tuple[Indices, Indices]:
        """(order, powers), each int64 (2**n,), of C after the move that is still to be made.

        Basis state p becomes i**powers[p] times basis state order[p].
        """
        start = np.arange(2**self.qubits, dtype=np.int64)
        index, power = (start, np.zeros_like(start)) if self._pending is None else self._pending
        for gate in self._gates:
            more, index = image(gate, index, self.qubits)
            power = power + more
        return index, power & 3
