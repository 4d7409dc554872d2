"""Measurements with a finite number of shots: outcomes that are drawn from a simulator's states, and their gradients.

Pauli words without different letters on a wire are measured together: each shot gives the bits of all wires. The numbers
are functions of seed, step and sample (`engines.randomness`), so that they depend neither on ranks nor on what was drawn
before. Outside of `keyed` torch's generator gives the seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch

from ketscale.engines import randomness
from ketscale.engines.circuits.checks import check_request, no_rows, refuse_transforms
from ketscale.engines.circuits.circuit import Angles, Circuit, Gate
from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.shifts import Shifted, Term, differentiated_terms, gathered, separated
from ketscale.engines.circuits.simulator import Simulator, probabilities
from ketscale.engines.circuits.superposition import Superposition, measured, mixed
from ketscale.engines.derivatives import uncompiled
from ketscale.errors import UserError

SHOTS = randomness.RandomStream("shots")
GRADIENTS = ("shift", "exact")
# Random numbers or probabilities at a time, in a gradient: those that a core's cache holds.
_MOST = 2**16


class Readout(NamedTuple):
    """What one kind of shot measures: the bits of `wires`, after `gates`; an outcome is the number that they spell.

    words: the places of its words among those asked for. masks, signs: a word is its sign times -1 for each of its bits.
    """

    gates: tuple[Gate, ...]
    wires: tuple[int, ...]
    words: tuple[int, ...] = ()
    masks: tuple[int, ...] = ()
    signs: tuple[int, ...] = ()

    def values(self, outcomes: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The words in outcomes (...), (..., words): +1 or -1."""
        masks, signs = (outcomes.new_tensor(each) for each in (self.masks, self.signs))
        bits = outcomes[..., None] & masks
        for shift in (16, 8, 4, 2, 1):
            bits = bits ^ bits >> shift
        return (signs * (1 - 2 * (bits & 1))).to(dtype)


class Shots:
    """`simulator`, whose results are frequencies and means over `shots` shots.

    gradient: 'shift' measures shifted circuits, each with shots of its own, so that the gradient is unbiased and
        independent of the value; 'exact' is the simulator's own: a noisy value with an exact gradient.
    """

    def __init__(self, simulator: Simulator, shots: int, gradient: str = "shift") -> None:
        if isinstance(shots, bool) or not isinstance(shots, int) or shots < 1:
            raise UserError(f"shots must be a whole number from 1, not {shots!r}")
        if gradient not in GRADIENTS:
            raise UserError(f"gradient of shots is 'shift' or 'exact', not {gradient!r}")
        self.simulator, self.shots, self.gradient = simulator, shots, gradient

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """Refused: shots do not give a state."""
        raise UserError("shots do not give a state: leave out shots, or ask for expectation values")

    @uncompiled  # each call draws anew
    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Means over shots, see `Simulator.expval`."""
        check_request(circuit, angles, initial, paulis, channels=True)
        words = tuple(paulis)
        return self._estimated(circuit, angles, readouts(words), len(words), initial, words)

    @uncompiled  # each call draws anew
    def probs(
        self, circuit: Circuit, angles: Angles, wires: Sequence[int], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The frequencies of outcomes, see `probabilities`."""
        check_request(circuit, angles, initial, channels=True)
        return self._estimated(circuit, angles, (Readout((), tuple(wires)),), 2 ** len(wires), initial, None)

    def superposed(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], superposition: Superposition
    ) -> torch.Tensor:
        """Means over shots of a superposition's normalised state, see `superposition.superposed`."""
        return measured(self, mixed(self.simulator, circuit, angles, superposition), paulis)

    @uncompiled  # each call draws anew
    def sample(
        self,
        circuit: Circuit,
        angles: Angles,
        wires: Sequence[int] | None,
        words: Sequence[str] | None = None,
    ) -> torch.Tensor:
        """The shots themselves, without gradients: bits (batch, shots, wires), int64; or values (batch, shots, words), +1 or -1."""
        check_request(circuit, angles, None, words, channels=True)
        refuse_transforms("a simulator with shots", *angles)
        with torch.no_grad():
            drawing = drawing_for(angles)
            if words is None:
                assert wires is not None
                outcomes = self._outcomes(
                    self._bounds(circuit, angles, Readout((), tuple(wires)), None), drawing, 0
                )
                places = torch.arange(len(wires) - 1, -1, -1, device=outcomes.device)
                return outcomes[..., None] >> places & 1
            values = angles.inputs.new_empty(len(angles.inputs), self.shots, len(words))
            for number, readout in enumerate(readouts(tuple(words))):
                bounds = self._bounds(circuit, angles, readout, None)
                outcomes = self._outcomes(bounds, drawing, number)
                values[..., readout.words] = readout.values(outcomes, values.dtype)
            return values

    def _estimated(
        self,
        circuit: Circuit,
        angles: Angles,
        readouts: tuple[Readout, ...],
        columns: int,
        initial: torch.Tensor | None,
        words: tuple[str, ...] | None,
    ) -> torch.Tensor:
        refuse_transforms("a simulator with shots", *angles, initial)
        inputs, weights = angles
        batch = len(inputs)
        if batch == 0:
            return no_rows(angles, initial, columns, inputs.dtype)
        # As a simulator computes equal samples only once.
        alike = circuit.inputs == 0 and (initial is None or initial.ndim == 1)
        if alike and batch > 1:
            one = self._estimated(circuit, Angles(inputs[:1], weights), readouts, columns, initial, words)
            return one.expand(batch, -1)
        experiment = _Experiment(self, circuit, readouts, columns, initial, drawing_for(angles, alike))
        with torch.no_grad():
            values = experiment.means(angles)
        differentiated = any(
            tensor is not None and tensor.requires_grad for tensor in (inputs, weights, initial)
        )
        if not (differentiated and torch.is_grad_enabled()):
            return values
        if self.gradient == "exact":
            exact = (
                probabilities(self.simulator, circuit, angles, readouts[0].wires, initial)
                if words is None
                else self.simulator.expval(circuit, angles, words, initial)
            )
            return values + (exact - exact.detach())
        if initial is not None and initial.requires_grad:
            raise UserError(
                "gradient 'shift' does not support an initial state or a superposition: use gradient 'exact'"
            )
        gradient = partial(
            replace(experiment, circuit=separated(circuit)[0]).gradient, differentiated_terms(circuit, angles)
        )
        shifted: torch.Tensor = Shifted.apply(
            gathered(circuit, angles), values, gradient, "gradient 'shift' of shots"
        )
        return shifted

    def _bounds(
        self, circuit: Circuit, angles: Angles, readout: Readout, initial: torch.Tensor | None
    ) -> torch.Tensor:
        """The sums of the probabilities of the first outcomes, (batch, outcomes)."""
        measured = _measured(circuit, readout.gates)
        return probabilities(self.simulator, measured, angles, readout.wires, initial).double().cumsum(1)

    def _outcomes(
        self, bounds: torch.Tensor, drawing: Drawing, number: int, rows: slice = slice(None)
    ) -> torch.Tensor:
        """The outcome of each shot of some rows with these bounds, int64 (rows, shots). number: of the readout."""
        key = SHOTS.key(drawing.seed, drawing.step, drawing.call, drawing.purpose, number)
        bounds = bounds[rows]
        uniform = randomness.uniform(key, drawing.ids[rows], self.shots) * bounds[:, -1:]
        # Rounding may make a product with the last bound equal to it.
        return torch.searchsorted(bounds, uniform, right=True).clamp_(max=bounds.shape[1] - 1)


def fused(shots: int, gradient: str) -> Shots:
    """`fused` with shots."""
    return Shots(Fused(), shots, gradient)


class Drawing(NamedTuple):
    """Keys of random numbers; purpose: 0 of values, 1 of gradients. ids: int64 (rows,)."""

    seed: Any
    step: randomness.Step
    call: int
    ids: torch.Tensor
    purpose: int = 0


def drawing_for(angles: Angles, alike: bool = False) -> Drawing:
    """What a call draws for, with a number for each row. alike: of all samples, whichever a rank has."""
    rows, device = len(angles.inputs), angles.inputs.device
    current = randomness.current()
    if current is None:
        seed = int(torch.randint(2**62, (), device="cpu"))
        return Drawing(seed, 0, 0, torch.arange(rows, device=device))
    number, samples = next(current.calls), current.samples.flatten()
    if alike or not len(samples) or rows % len(samples):
        ids = torch.arange(rows, device=device)
    else:
        each = rows // len(samples)
        ids = (samples[:, None] * each + torch.arange(each, device=samples.device)).flatten().to(device)
    return Drawing(current.seed, current.step, number, ids)


@dataclass(frozen=True)
class _Experiment:
    """What is measured. columns: of the results."""

    shots: Shots
    circuit: Circuit
    readouts: tuple[Readout, ...]
    columns: int
    initial: torch.Tensor | None
    drawing: Drawing

    def means(self, angles: Angles) -> torch.Tensor:
        """Frequencies, or the means of words, (batch, columns)."""
        inputs = angles.inputs
        batch = len(inputs)
        values = inputs.new_empty(batch, self.columns)
        for number, readout in enumerate(self.readouts):
            bounds = self.shots._bounds(self.circuit, angles, readout, self.initial)
            size = bounds.shape[1]
            counted = not readout.words or size <= self.shots.shots
            counts = values.new_zeros(batch, size) if counted else None
            some = max(1, _MOST // self.shots.shots)
            for rows in (slice(first, first + some) for first in range(0, batch, some)):
                outcomes = self.shots._outcomes(bounds, self.drawing, number, rows)
                if counts is None:
                    values[rows, readout.words] = readout.values(outcomes, values.dtype).mean(1)
                else:
                    counts[rows].scatter_add_(1, outcomes, counts.new_ones(()).expand_as(outcomes))
            if counts is None:
                continue
            counts /= self.shots.shots
            if not readout.words:
                return counts
            outcomes = torch.arange(size, device=inputs.device)
            values[:, readout.words] = counts @ readout.values(outcomes, values.dtype)
        return values

    def gradient(self, terms: Sequence[Term], angles: torch.Tensor, cotangent: torch.Tensor) -> torch.Tensor:
        """The gradient (rows, uses) at angles (rows, uses), for a cotangent (rows, columns).

        The circuit has an input for each use of an angle. terms: see `wanted_terms`.
        """
        rows = len(angles)
        if not terms:  # weights are trained, but the circuit has none
            return torch.zeros_like(angles)
        places = torch.tensor([place for place, _, _ in terms], device=angles.device)
        factors, shifts = angles.new_tensor([term[1:] for term in terms]).unbind(1)
        gradient = torch.zeros_like(angles)
        most = _MOST // (max(self.shots.shots, 2**self.circuit.qubits) * rows)
        # Equal parts, so that a simulator has one batch to compile for.
        size = max((size for size in range(1, most + 1) if len(terms) % size == 0), default=1)
        for part in torch.arange(len(terms), device=angles.device).split(size):
            at = angles.repeat(len(part), 1, 1)
            at[torch.arange(len(part)), :, places[part]] += shifts[part, None]
            ids = self.drawing.ids * len(terms) + part[:, None]
            initial = self.initial
            if initial is not None and initial.ndim == 2:
                initial = initial.repeat(len(part), 1)
            drawing = self.drawing._replace(ids=ids.flatten(), purpose=1)
            shifted = replace(self, initial=initial, drawing=drawing)
            means = shifted.means(Angles(at.flatten(0, 1), angles.new_empty(0)))
            each = (means.unflatten(0, (len(part), rows)) * cotangent).sum(-1) * factors[part, None]
            gradient.index_add_(1, places[part], each.T)
        return gradient


@lru_cache(maxsize=256)
def _measured(circuit: Circuit, gates: tuple[Gate, ...]) -> Circuit:
    """The circuit followed by gates; the same object each time, whose hash is known."""
    # A readout error stays before the change of basis, since it is the same of every letter.
    return Circuit(circuit.qubits, (*circuit.gates, *gates)) if gates else circuit


@lru_cache(maxsize=256)
def readouts(words: tuple[str, ...]) -> tuple[Readout, ...]:
    """How words are measured: each in the first readout whose letters, wire by wire, are its own or nobody's."""
    letters: list[dict[int, str]] = []
    members: list[list[int]] = []
    for place, word in enumerate(words):
        own = {wire: letter for wire, letter in enumerate(word) if letter != "I"}
        for others, members_of in zip(letters, members, strict=True):
            if all(others.get(wire, letter) == letter for wire, letter in own.items()):
                others |= own
                members_of.append(place)
                break
        else:
            letters.append(own)
            members.append([place])
    return tuple(
        _readout(own, [words[place] for place in places], tuple(places))
        for own, places in zip(letters, members, strict=True)
    )


def _readout(letters: Mapping[int, str], words: Sequence[str], places: tuple[int, ...]) -> Readout:
    """The readout of words that have these letters, by wire: a Clifford gate on each turns X into Z, and Y into -Z."""
    wires = tuple(sorted(letters))
    turns = {"X": ("Hadamard",), "Y": ("S", "Hadamard"), "Z": ()}
    gates = tuple(Gate(name, (wire,)) for wire in wires for name in turns[letters[wire]])
    masks = tuple(sum((word[wire] != "I") << at for at, wire in enumerate(reversed(wires))) for word in words)
    return Readout(gates, wires, places, masks, tuple((-1) ** word.count("Y") for word in words))
