"""Errors of trajectories as a Pauli frame: a circuit as parts whose angles' signs they turn, with dampings in between.

An error X or Z of a wire is a bit in each trajectory. Clifford gates exchange these bits, rotations about words that anticommute
with an error turn the other way round, and so do measured words. Before other gates an error becomes a gate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
import torch

from ketscale.engines.circuits.circuit import READOUT, Circuit, Column, Gate
from ketscale.engines.circuits.fused.frame import CONJUGATES
from ketscale.engines.circuits.fused.program import Angle, Turn, elementary
from ketscale.engines.noise.channels import channel, transfer
from ketscale.engines.noise.damping import Dampings
from ketscale.errors import UserError

# The share of even odds in a draw whose probabilities are differentiated, and at most of all draws of a trajectory together:
# the quotients of many draws would vary more than what they multiply.
EVEN, MOST_EVEN = 0.02, 0.2
# Words that readout errors on many measured wires mix.
MOST_WORDS = 2**14

# Instead of 0 under a root, whose slope is infinite there.
TINY = 1e-30

# The letters of a word of Paulis as bits, (X, Z).
_BITS = {"I": (0, 0), "X": (1, 0), "Y": (1, 1), "Z": (0, 1)}


class Part:
    """Unitaries, whose angles are all inputs, and then dampings.

    events: what errors meet, in order. damped: the wires of dampings. angles: those of the columns, without errors. Gates that do
    not carry errors come after gates of these.
    """

    def __init__(self) -> None:
        self.gates: list[Gate] = []
        self.events: list[Gate | Turn] = []
        self.damped: set[int] = set()
        self.angles: list[Angle] = []

    def turn(self, turn: Turn) -> None:
        """A rotation about a word: of its letters X or Y, or of its last Z, which Clifford gates make the word."""
        spelt = [pair for pair in zip(turn.letters, turn.wires, strict=True) if pair[0] != "I"]
        if not spelt:
            return  # a global phase
        controls = [wire for letter, wire in spelt if letter == "Z"]
        rest = [pair for pair in spelt if pair[0] != "Z"] or [("Z", controls.pop())]
        letter, last = rest[-1]
        name = f"R{letter}" if len(rest) == 1 else f"Ising{letter}{letter}"
        around = [Gate("CZ" if letter == "X" else "CNOT", (wire, last)) for wire in controls]
        self.gates += around
        self._column(name, tuple(wire for _, wire in rest), turn.angle)
        self.gates += around
        self.events.append(turn)

    def gate(self, gate: Gate) -> None:
        """A gate without angles."""
        for wire in () if gate.name in CONJUGATES else gate.wires:
            for name in ("RX", "RZ"):
                self._column(name, (wire,), Angle("constant", 0, math.pi))
        self.gates.append(gate)
        self.events.append(gate)

    def _column(self, name: str, wires: tuple[int, ...], angle: Angle) -> None:
        self.gates.append(Gate(name, wires, (Column("input", len(self.angles)),)))
        self.angles.append(angle)


class Plan(NamedTuple):
    """A circuit as parts, each with its unitaries.

    words: what is measured at the end: the words that are asked for, at the places `asked`, and those that readout errors mix with
    them. readouts: for each wire with errors their columns, and the place of each word without its letter there.
    """

    parts: tuple[tuple[Part, Circuit], ...]
    words: tuple[str, ...]
    asked: list[int]
    readouts: tuple[tuple[tuple[Column, ...], list[int]], ...]
    draws: int


# How many numbers channels that need the state draw; others draw one.
_DAMPINGS = {"AmplitudeDamping": 1, "GeneralizedAmplitudeDamping": 2, "ResetError": 2}


@lru_cache(maxsize=256)
def _relaxation(gate: Gate) -> tuple[float, float, float] | None:
    """A constant channel as damping of a strength, towards |1> with a probability, and then a phase flip with another one.

    None if it is no such channel, or a mixture of Pauli words.
    """
    if gate.name == "ThermalRelaxationError":
        matrix = channel(gate.name, gate.columns).constant
    elif gate.kraus is not None and len(gate.wires) == 1:
        matrix = transfer(gate.kraus)
    else:
        return None
    shape = np.diag(np.diag(matrix)) + np.diag([matrix[3, 0]], -3)
    strength = 1 - matrix[3, 3]
    if strength < 1e-9 or abs(matrix - shape).max() > 1e-9 or abs(matrix[1, 1] - matrix[2, 2]) > 1e-9:
        return None
    coherence = matrix[1, 1] / math.sqrt(max(TINY, matrix[3, 3]))
    if abs(matrix[3, 0]) > strength + 1e-9 or abs(coherence) > 1 + 1e-9:
        return None
    return min(strength, 1.0), (1 - matrix[3, 0] / strength) / 2, max(0.0, (1 - coherence) / 2)


def _damping_draws(gate: Gate) -> int:
    """How many numbers a channel that needs the state draws; 0 of others."""
    return _DAMPINGS.get(gate.name, 0) or 3 * (_relaxation(gate) is not None)


@lru_cache(maxsize=256)
def plan_of(circuit: Circuit, words: tuple[str, ...]) -> Plan:
    """The parts of a circuit that measures words.

    Raises:
        UserError: readout errors mix too many words.
    """
    parts = [Part()]
    channels = [gate for gate in circuit.gates if gate.is_channel and gate.name != READOUT]
    for gate in circuit.gates:
        if gate.is_channel:
            if gate.name != READOUT:
                parts[-1].events.append(gate)
            if _damping_draws(gate):
                parts[-1].damped.add(gate.wires[0])
            continue
        for each in elementary(gate):
            if parts[-1].damped & {*each.wires}:
                parts.append(Part())
            if isinstance(each, Turn):
                parts[-1].turn(each)
            else:
                parts[-1].gate(each)
    if parts[-1].damped:
        parts.append(Part())
    readouts = [gate for gate in circuit.gates if gate.name == READOUT]
    mixed = dict.fromkeys(words)
    for gate in readouts:
        mixed |= dict.fromkeys(_without(word, gate.wires[0]) for word in [*mixed])
        if len(mixed) > MOST_WORDS:
            raise UserError(f"readout errors mix more than {MOST_WORDS} words: measure fewer wires in a word")
    places = {word: number for number, word in enumerate(mixed)}
    return Plan(
        tuple((part, Circuit(circuit.qubits, tuple(part.gates))) for part in parts),
        tuple(mixed) if readouts else words,
        [places[word] for word in words],
        tuple((gate.columns, [places[_without(word, gate.wires[0])] for word in mixed]) for gate in readouts),
        sum(_damping_draws(gate) or 1 for gate in channels),
    )


def _without(word: str, wire: int) -> str:
    return word[:wire] + "I" + word[wire + 1 :]


class Rows:
    """Trajectories, a row each: angles (rows, columns), their draws, and the errors that they carry.

    x, z: of each wire whether there is an error X, or Z, bool (rows,). quotient: the product of p / q of all draws, or None.
    """

    def __init__(
        self, inputs: torch.Tensor, weights: torch.Tensor, uniform: torch.Tensor, qubits: int
    ) -> None:
        self._columns = torch.cat([inputs, weights, inputs.new_ones(len(inputs), 1)], 1)
        self._first = {"input": 0, "weight": inputs.shape[1]}
        given = {"input": inputs, "weight": weights}
        self._trained = {
            kind for kind, each in given.items() if torch.is_grad_enabled() and each.requires_grad
        }
        self._draws, self._even = iter(uniform.unbind(1)), min(EVEN, MOST_EVEN / max(1, uniform.shape[1]))
        none = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
        self._x, self._z = [none] * qubits, [none] * qubits
        # For each damping its wire, the share of even odds, the strength, the rows in which |0> decays to |1>, and draws.
        self._dampings: list[tuple[int, float, torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self.quotient: torch.Tensor | None = None

    def _place(self, column: Column | Angle) -> int:
        """The place of a column among all; the last one is of constants."""
        return -1 if column.kind == "constant" else self._first[column.kind] + column.index

    def number(self, column: Column) -> torch.Tensor:
        """The numbers of a column, (rows,)."""
        numbers = self._columns[:, self._place(column)]
        return numbers * column.value if column.kind == "constant" else numbers

    def sign(self, letters: str, wires: Sequence[int]) -> torch.Tensor:
        """-1 in the rows whose errors anticommute with a word, else 1."""
        odd = self._x[0] & False
        for letter, wire in zip(letters, wires, strict=True):
            x, z = _BITS[letter]
            if x:
                odd = odd ^ self._z[wire]
            if z:
                odd = odd ^ self._x[wire]
        return 1 - 2 * odd.to(self._columns.dtype)

    def through(self, part: Part) -> torch.Tensor:
        """Let the errors meet a part's events. Returns the part's angles (rows, columns)."""
        signs = []
        for event in part.events:
            if isinstance(event, Turn):
                signs.append(self.sign(event.letters, event.wires))
            elif event.is_channel:
                self._channel(event)
            elif event.name in CONJUGATES:
                self._conjugate(event)
            else:
                for wire in event.wires:
                    signs += [bits[wire].to(self._columns.dtype) for bits in (self._x, self._z)]
                    self._x[wire] = self._z[wire] = self._x[wire] & False
        if not signs:
            return self._columns[:, :0]
        places = [self._place(angle) % self._columns.shape[1] for angle in part.angles]
        angles = self._columns.index_select(1, torch.tensor(places, device=self._columns.device))
        return angles * self._columns.new_tensor([a.factor for a in part.angles]) * torch.stack(signs, 1)

    def damp(self, state: torch.Tensor) -> torch.Tensor:
        """The states (rows, 2**n) after the dampings that `through` met."""
        wires, even, *rest = zip(*self._dampings, strict=True)
        self._dampings = []
        strengths, up, uniform = map(torch.stack, rest)
        # The derivatives at the ends are those beside them.
        inside = strengths.clamp(TINY, 1 - 16 * torch.finfo(strengths.dtype).eps)
        strengths = strengths + (inside - strengths).detach()
        out, quotient = Dampings.apply(state, strengths, [*wires], up, uniform, [*even])
        self._weigh(quotient)
        return out

    def _conjugate(self, gate: Gate) -> None:
        """Carry the errors through a Clifford gate; each of `CONJUGATES` is its own inverse but for signs."""
        none = self._x[0] & False
        images = [[none] * len(gate.wires), [none] * len(gate.wires)]
        for word, image in CONJUGATES[gate.name].items():
            at = next(place for place, letter in enumerate(word) if letter != "I")
            error = (self._x if word[at] == "X" else self._z)[gate.wires[at]]
            for place, letter in enumerate(image.lstrip("-")):
                for bits, there in zip(images, _BITS[letter], strict=True):
                    bits[place] = bits[place] ^ error if there else bits[place]
        for place, wire in enumerate(gate.wires):
            self._x[wire], self._z[wire] = images[0][place], images[1][place]

    def _channel(self, gate: Gate) -> None:
        """Draw an error, or note a damping."""
        strengths = [self.number(column) for column in gate.columns]
        trained = any(column.kind in self._trained for column in gate.columns)
        relaxation = _relaxation(gate)
        if gate.name not in _DAMPINGS and relaxation is None:
            words, chances = _mixture(gate, strengths)
            self._error(gate.wires, words, chances.to(self._x[0].device), trained)
            return
        (wire,) = gate.wires
        up = self._x[wire]
        if relaxation is not None:
            strength, rising, flip = (self._columns.new_full((len(up), 1), each) for each in relaxation)
            up = up ^ (self._choose(rising, False) == 0)
            self._dampings.append((wire, 0.0, strength[:, 0], up, next(self._draws)))
            self._error((wire,), ("Z",), flip, False)
            return
        strength = strengths[0]
        if gate.name == "GeneralizedAmplitudeDamping":
            up = up ^ (self._choose(strengths[1][:, None], trained) == 0)
        elif gate.name == "ResetError":
            chosen = self._choose(torch.stack(strengths, 1), trained)
            strength, up, trained = (chosen < 2).to(strength.dtype), up ^ (chosen == 1), False
        self._dampings.append((wire, self._even if trained else 0.0, strength, up, next(self._draws)))

    def _error(
        self, wires: Sequence[int], words: Sequence[str], chances: torch.Tensor, trained: bool
    ) -> None:
        """Draw one of the errors `words` on wires, with these probabilities (rows, words), or none."""
        chosen = self._choose(chances, trained)
        for place, wire in enumerate(wires):
            for which, bits in enumerate((self._x, self._z)):
                table = [_BITS[word[place]][which] for word in words] + [0]
                bits[wire] = bits[wire] ^ torch.tensor(table, dtype=torch.bool, device=chosen.device)[chosen]

    def _choose(self, chances: torch.Tensor, trained: bool) -> torch.Tensor:
        """Draw one of some outcomes with these probabilities (rows, outcomes), or none: its number (rows,)."""
        every = torch.cat([chances, 1 - chances.sum(1, keepdim=True)], 1)
        even = self._even if trained else 0.0
        odds = (1 - even) * every.detach() + even / every.shape[1]
        chosen = (next(self._draws)[:, None] >= odds[:, :-1].cumsum(1)).sum(1)
        if trained:
            self._weigh((every / odds).gather(1, chosen[:, None])[:, 0])
        return chosen

    def _weigh(self, quotient: torch.Tensor) -> None:
        self.quotient = quotient if self.quotient is None else self.quotient * quotient


def _mixture(gate: Gate, strengths: Sequence[torch.Tensor]) -> tuple[tuple[str, ...], torch.Tensor]:
    """A channel's Pauli words, and their probabilities (rows, words)."""
    words = tuple("".join(letters) for letters in product("IXYZ", repeat=len(gate.wires)))
    match gate.name:
        case "BitFlip":
            return ("X",), strengths[0][:, None]
        case "PhaseFlip":
            return ("Z",), strengths[0][:, None]
        case "PhaseDamping":
            return ("Z",), (1 - (1 - strengths[0][:, None]).clamp_min(TINY).sqrt()) / 2
        case "PauliChannel":
            return ("X", "Y", "Z"), torch.stack(list(strengths), 1)
        case "DepolarizingChannel":
            return words[1:], (strengths[0] / (len(words) - 1))[:, None].expand(-1, len(words) - 1)
    matrix = transfer(gate.kraus or ())
    if np.abs(matrix - np.diag(np.diag(matrix))).max() > 1e-9:
        raise UserError(
            f"{gate.name} on wires {gate.wires}: trajectories take given channels that are mixtures of Pauli words; leave out trajectories"
        )
    commute = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]])
    chances = (commute if len(gate.wires) == 1 else np.kron(commute, commute)) @ np.diag(matrix) / len(words)
    return words[1:], torch.from_numpy(chances[None, 1:])
