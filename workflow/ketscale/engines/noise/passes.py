"""Writes a noisy circuit as passes over its Pauli vector: small real matrices on one site or two, in order.

A *site* is a qubit's four letters; a vector has 4**n numbers, the first site's letter the slowest. What acts on one site
alone becomes one matrix, a *chain* of factors with features (`channels`), until a gate couples it to another site. Every
coupling is a CNOT or CZ, a permutation of the 16 pairs of letters with signs; the diagonal channels after it, if they are
constant, join the signs. So a pass is: a chain on each of two sites, then a permutation, then 16 factors. A rotation about a
word of several letters is one of the last letter between CNOTs; a SWAP renames sites. Gates that only
permute basis states, such as Toffoli, and given channels on two wires are constant matrices on their sites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ketscale.engines.circuits.circuit import Circuit, Gate
from ketscale.engines.circuits.fused.frame import image
from ketscale.engines.circuits.fused.program import POWERS_OF_I, Angle, Turn, elementary
from ketscale.engines.noise.channels import Factor, Feature, Transfer, channel, rotation, transfer
from ketscale.engines.noise.sweep import MOST_FEATURES, MOST_SITES, OTHERS, SPREAD_SLOPE
from ketscale.errors import UserError

# Changes of basis that turn Z into a letter.
_HALF = np.sqrt(0.5)
_HADAMARD, _S = np.array([[_HALF, _HALF], [_HALF, -_HALF]]), np.diag([1, 1j])
_FROM_Z = {"X": _HADAMARD, "Y": _S @ _HADAMARD}

Chain = tuple[Factor, ...]


@dataclass
class Pass:
    """A pass over the vector.

    sites: two, or up to three with `matrix`. chains: on each of the two sites, before the rest. order, factors: pair i becomes
    pair order[i], times factors[order[i]]. matrix: constant, instead of all of these. spread: the trained strength of two-qubit
    depolarising, instead of all of these.
    """

    sites: tuple[int, ...]
    chains: tuple[Chain, ...] = ((), ())
    order: NDArray[np.int64] = field(default_factory=lambda: np.arange(16))
    factors: NDArray[np.float64] = field(default_factory=lambda: np.ones(16))
    matrix: Transfer | None = None
    spread: Feature | None = None

    @property
    def multiplies(self) -> bool:
        """Whether it has factors."""
        return self.matrix is None and self.spread is None


# The kinds of features, in their order.
KINDS = ("cos", "sin", *OTHERS)


@dataclass(frozen=True, eq=False)
class Noisy:
    """A circuit as passes. places: of the measured words in the vector. features: all that the passes have, by kind.

    qubits: at least two, so that each pass has two sites; one alone has an idle one beside it.
    """

    qubits: int
    passes: tuple[Pass, ...]
    places: NDArray[np.int64]
    features: tuple[Feature, ...]


@lru_cache(maxsize=256)
def noisy(circuit: Circuit, words: tuple[str, ...] | None) -> Noisy:
    """The passes of a circuit that measures words; None: the whole vector.

    Raises:
        UserError: a gate on many wires is none of those that are written as passes.
    """
    count = max(2, circuit.qubits)
    writer = _Writer(count)
    for gate in circuit.gates:
        writer.gate(gate)
    if words is None:
        letters = np.indices((4,) * circuit.qubits).reshape(circuit.qubits, -1).T
    else:
        letters = np.array([["IXYZ".index(letter) for letter in word] for word in words])
    writer.finish(np.flatnonzero(letters.any(0)).tolist())
    places = letters @ (1 << 2 * (count - 1 - np.array(writer.sites[: circuit.qubits])))
    every = [feature for factor in factors_of(writer.passes) for feature, _ in factor.parts]
    every += [each.spread for each in writer.passes if each.spread]
    features = sorted(dict.fromkeys(every), key=lambda feature: KINDS.index(feature.kind))
    return Noisy(count, tuple(writer.passes), places, tuple(features))


def factors_of(passes: Sequence[Pass]) -> list[Factor]:
    """The factors of all chains, in the order of passes and chains."""
    return [factor for each in passes for chain in each.chains for factor in chain]


class _Writer:
    """Writes passes, gate by gate. sites: of each wire. pending: the chain of each site that no pass has yet."""

    def __init__(self, qubits: int) -> None:
        self.sites = list(range(qubits))
        self.passes: list[Pass] = []
        self._pending: list[list[Factor]] = [[] for _ in range(qubits)]
        self._last: list[Pass | None] = [None] * qubits

    def gate(self, gate: Gate) -> None:
        """One gate or channel."""
        if gate.is_channel:
            self._channel(gate)
            return
        for part in elementary(gate):
            if isinstance(part, Turn):
                self._turn(part)
            elif part.name == "SWAP":
                one, other = part.wires
                self.sites[one], self.sites[other] = self.sites[other], self.sites[one]
            elif part.name in ("CNOT", "CZ"):
                self._couple(part.wires, part.name)
            elif len(part.wires) == 1:
                self._factor(part.wires[0], Factor(_moves(part)))
            else:
                self._matrix(part.wires, partial(_moves, part))

    def finish(self, measured: Sequence[int]) -> None:
        """The chains that measured wires still wait for."""
        self._settle([self.sites[wire] for wire in measured])

    def _settle(self, sites: Sequence[int]) -> None:
        """The chains that these sites wait for, two by two; a last one beside any other site."""
        left = [site for site in sites if self._pending[site]]
        for at in range(0, len(left) - 1, 2):
            self._add(Pass((left[at], left[at + 1])))
        if len(left) % 2:
            self._add(Pass((left[-1], (left[-1] + 1) % len(self.sites))))

    def _channel(self, gate: Gate) -> None:
        if gate.kraus is not None:
            matrix = transfer(gate.kraus)
            if len(gate.wires) == 1:
                self._factor(gate.wires[0], Factor(matrix))
            else:
                self._matrix(gate.wires, lambda: matrix)
        elif len(gate.wires) == 1:
            self._factor(gate.wires[0], channel(gate.name, gate.columns))
        else:
            self._depolarise(gate)

    def _depolarise(self, gate: Gate) -> None:
        """Depolarising of two qubits: every word but the identity is multiplied by 1 - 16 p / 15."""
        first, second = (self.sites[wire] for wire in gate.wires)
        made = Pass((first, second))
        (column,) = gate.columns
        if column.kind != "constant":
            self._settle((first, second))
            made.spread = Feature("strength", (Angle(column.kind, column.index, 1.0),))
            self._add(made)
            return
        factors = np.where(np.arange(16) > 0, 1 + SPREAD_SLOPE * column.value, 1.0)
        last = self._last[first]
        idle = not self._pending[first] and not self._pending[second]
        if idle and last is not None and last is self._last[second] and last.multiplies:
            last.factors *= factors  # the same of either order of the sites
        else:
            made.factors = factors
            self._add(made)

    def _factor(self, wire: int, factor: Factor) -> None:
        site = self.sites[wire]
        pending, last = self._pending[site], self._last[site]
        if not pending and factor.is_diagonal and last is not None and last.multiplies:
            own = np.diag(factor.constant)
            pair = np.ones((4, 4)) * (own[:, None] if last.sites[0] == site else own[None, :])
            last.factors *= pair.flatten()
            return
        joined = pending[-1].before(factor) if pending else None
        if joined is None:
            pending.append(factor)
        else:
            pending[-1] = joined

    def _turn(self, turn: Turn) -> None:
        """A rotation about a word: about Z of its last letter, between changes of basis and CNOTs."""
        letters = [
            (wire, letter) for letter, wire in zip(turn.letters, turn.wires, strict=True) if letter != "I"
        ]
        if not letters:
            return
        if len(letters) == 1:
            ((wire, letter),) = letters
            self._factor(wire, rotation(letter, turn.angle))
            return
        *others, last = [wire for wire, _ in letters]
        for wire, letter in letters:
            if letter != "Z":
                self._factor(wire, Factor(transfer([_FROM_Z[letter].conj().T])))
        for wire in others:
            self._couple((wire, last), "CNOT")
        self._factor(last, rotation("Z", turn.angle))
        for wire in reversed(others):
            self._couple((wire, last), "CNOT")
        for wire, letter in letters:
            if letter != "Z":
                self._factor(wire, Factor(transfer([_FROM_Z[letter]])))

    def _couple(self, wires: tuple[int, ...], name: str) -> None:
        """A CNOT or CZ."""
        matrix = _moves(Gate(name, wires))
        order = np.abs(matrix).argmax(0)
        factors = np.zeros(16)
        factors[order] = matrix[order, np.arange(16)]
        self._add(Pass(tuple(self.sites[wire] for wire in wires), order=order, factors=factors))

    def _matrix(self, wires: tuple[int, ...], matrix: Callable[[], Transfer]) -> None:
        """A constant matrix on wires, which a function gives if there are not too many."""
        if len(wires) > MOST_SITES:
            raise UserError(
                f"a noisy circuit has gates on at most {MOST_SITES} wires, not on {wires}: write it by such gates"
            )
        sites = tuple(self.sites[wire] for wire in wires)
        self._settle(sites)
        self._add(Pass(sites, matrix=matrix()))

    def _add(self, made: Pass) -> None:
        """A pass, which takes the pending chains of its sites."""
        if made.matrix is None:
            made.chains = tuple(tuple(self._pending[site]) for site in made.sites)
        for site in made.sites:
            self._pending[site], self._last[site] = [], made
        self.passes.append(made)


def _moves(gate: Gate) -> Transfer:
    """The matrix of a gate that permutes basis states, times powers of i; the first wire is the most significant."""
    count = len(gate.wires)
    states = np.arange(2**count)
    powers, images = image(replace(gate, wires=tuple(range(count))), states, count)
    unitary = np.zeros((2**count, 2**count), complex)
    unitary[images, states] = POWERS_OF_I[powers % 4]
    return transfer([unitary])


class FeatureTables(NamedTuple):
    """The sources of features: columns and factors of the turns (turns,), and kinds and columns of the others (others, 3).

    Columns are those of inputs and weights side by side.
    """

    turn_columns: NDArray[np.int64]
    turn_factors: NDArray[np.float64]
    others: NDArray[np.int64]


def feature_tables(program: Noisy, inputs: int) -> FeatureTables:
    """The tables of a program's features, for so many columns of inputs."""

    def place(angle: Angle) -> int:
        return angle.index + (inputs if angle.kind == "weight" else 0)

    turns = [each.of[0] for each in program.features if each.kind == "cos"]
    others = [
        (OTHERS.index(each.kind), place(each.of[0]), place(each.of[-1]))
        for each in program.features
        if each.kind in OTHERS
    ]
    return FeatureTables(
        np.array([place(each) for each in turns], np.int64),
        np.array([each.factor for each in turns], np.float64),
        np.array(others, np.int64).reshape(-1, 3),
    )


def factor_tables(program: Noisy) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The features (factors, 4), counted from 1, and parts (factors, 4, 4, 4) of all factors, in the order of `factors_of`.

    The first part is the constant one, of feature 0, which is 1; of later ones, those that a factor lacks are zero.
    """
    column = {feature: number for number, feature in enumerate(program.features, 1)}
    factors = factors_of(program.passes)
    places = np.zeros((len(factors), 1 + MOST_FEATURES), np.int64)
    parts = np.zeros((*places.shape, 4, 4))
    for number, factor in enumerate(factors):
        parts[number, 0] = factor.constant
        for place, (feature, part) in enumerate(factor.parts, 1):
            places[number, place], parts[number, place] = column[feature], part
    return places, parts
