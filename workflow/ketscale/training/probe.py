"""A probe: draws weights of a model's circuit instead of training it; see `engines.circuits.trainability`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch

from ketscale.config import Settings
from ketscale.config.block import SEEDS
from ketscale.config.simulators.circuits import CircuitSimulator
from ketscale.engines.circuits import haar, trainability
from ketscale.engines.circuits.circuit import Angles, Circuit, pauli_words
from ketscale.engines.circuits.transforms import inputs_only
from ketscale.engines.randomness import RandomStream, uniform
from ketscale.errors import UserError
from ketscale.measure.clock import Clock
from ketscale.parallel.world import World
from ketscale.problems import models
from ketscale.problems.problem import Problem, convert
from ketscale.simulators.factory import build_simulator
from ketscale.simulators.spanned import Request, noted
from ketscale.training.history import History
from ketscale.training.training import Training

SAMPLE = RandomStream("probe.sample")
WEIGHTS = RandomStream("probe.weights")
MODELS = RandomStream("probe.models")


class Probe(Training):
    """Probes the circuit that a problem's model evaluates for one training sample, which the run's seed chooses.

    It is the largest of several circuits, in its first call. Its weights are drawn; if it has none, and all its
    angles come from other layers, these angles are. For the other arguments see `Training`.
    """

    stepped: ClassVar[bool] = False
    tested = False
    no_checkpoints = "a probe"

    def __init__(
        self, problem: Problem, world: World, clock: Clock, settings: Settings, history: History
    ) -> None:
        super().__init__(problem, world, clock, settings.run.batch, history)
        assert settings.protocol.probe is not None
        self._settings, self._probe = settings, settings.protocol.probe

    def run(self) -> None:
        """Draw the weights.

        Raises:
            UserError: the model evaluates no circuit, or one without angles, or with some that are not finite; or
                another one from each seed.
        """
        asked = self._asked()
        first = max(asked, key=lambda each: (each.circuit.qubits, len(each.circuit.gates)))
        circuit, free = first.circuit, inputs_only(first.circuit)
        # Without weights, the circuit's angles are what other layers learn.
        start = circuit.inputs if circuit.weights else 0
        columns = free.inputs - start
        if columns == 0:
            raise UserError(
                f"the circuit of {self._settings.run.model} has no angle, so there is nothing to draw"
            )
        drawn = [first] * self._probe.draws if self._probe.weights == "uniform" else self._initial(circuit)
        here, initial = _angles(drawn), _states(drawn)
        key = WEIGHTS.key(self._settings.run.seed, 0)
        turns = 2 * math.pi * uniform(key, torch.arange(len(drawn)), columns).to(here)
        anywhere = torch.cat([here[:, :start], turns], 1)
        if self._probe.weights == "uniform":
            here = anywhere
        if not here.isfinite().all():
            raise UserError(
                f"{self._settings.run.model} gives its circuit angles that are not finite; look at the layers before it"
            )
        words = first.paulis or pauli_words(circuit.qubits)
        found = trainability.gradients(first.simulator, free, here, anywhere, start, words, initial)
        with torch.no_grad():
            states = first.simulator.state(free, Angles(here, here.new_empty(0)), initial)
        self.trainability = {
            "circuits": len({each.circuit for each in asked}),
            "qubits": circuit.qubits,
            "gates": len(circuit.gates),
            "weights": columns,
            "observables": len(words),
            **found._asdict(),
            "frame": [
                trainability.frame_potential(states, t) / haar.frame_potential(circuit.qubits, t)
                for t in (1, 2)
            ],
            "entanglement": trainability.meyer_wallach(states),
        }
        self.samples_seen = 1

    def _initial(self, circuit: Circuit) -> list[Request]:
        """What models ask of the circuit that are made anew, one for each draw, each from a seed of its own."""
        settings, problem, found = self._settings, self.problem, []
        simulator = None
        if isinstance(settings.simulator, CircuitSimulator):
            simulator = build_simulator(settings.run.simulator, settings.simulator, self.world.device)
        precision = torch.float64 if settings.protocol.precision == "fp64" else torch.float32
        kept = problem.model
        try:
            for draw in range(self._probe.draws):
                seed = MODELS.key(settings.run.seed, draw) % SEEDS
                again = dataclasses.replace(settings, run=dataclasses.replace(settings.run, seed=seed))
                torch.manual_seed(seed)
                model = models.of_settings(again, simulator, **problem.arguments)
                problem.model = convert(model, self.world.device, precision)
                same = [each for each in self._asked() if each.circuit == circuit]
                if not same:
                    raise UserError(
                        f"{settings.run.model} has another circuit from another seed: give all seeds the same one, or take "
                        "weights: uniform"
                    )
                found.append(same[0])
        finally:
            problem.model = kept
        return found

    def _asked(self) -> list[Request]:
        """What the model asks simulators for, for the run's training sample."""
        problem, run = self.problem, self._settings.run
        sample = int(SAMPLE.key(run.seed, 0) % problem.splits["train"])
        with noted() as asked:
            problem.outputs("train", torch.tensor([sample]))
        if not asked:
            raise UserError(
                f"{run.model} evaluates no circuit with a simulator of KetScale, of which weights could be drawn: use "
                "ketscale.Layer, ketscale.from_qnode or its argument simulator"
            )
        return asked

    def weights(self) -> Iterable[torch.Tensor]:
        """The parameters as the run's seed has drawn them."""
        return self.problem.model.parameters()


def _angles(drawn: Sequence[Request]) -> torch.Tensor:
    """The first sample's inputs, then the weights, of each request, (draws, columns)."""
    rows = []
    for each in drawn:
        inputs, weights = each.angles
        rows.append(torch.cat([inputs[0, : each.circuit.inputs], weights[: each.circuit.weights]]))
    return torch.stack(rows).detach()


def _states(drawn: Sequence[Request]) -> torch.Tensor | None:
    """The first sample's initial state of each request, (draws, amplitudes); None of |0...0>."""
    states = [each.initial for each in drawn if each.initial is not None]
    rows = [state if state.ndim == 1 else state[0] for state in states]
    return torch.stack(rows).detach() if rows else None
