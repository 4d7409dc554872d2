"""Random systems against dense exponentials: values, and the derivative by everything at once."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from ketscale import dynamics as kd
from ketscale.engines.dynamics.methods import Route
from ketscale.engines.dynamics.propagators import propagator
from ketscale.engines.dynamics.tasks import Tasks
from tests.unit.engines.dynamics.reference import Array, Operators, Values, derivative, evolved

DTYPES = {"fp64": torch.float64, "fp32": torch.float32}
# What is evolved; of density matrices the rates of jumps, times a duration of about 1.
RATES = {"ket": 0.0, "unitary": 0.0, "noiseless": 0.0, "weak": 1e-3, "usual": 0.1, "strong": 20.0}


class Case(NamedTuple):
    """A random system of so many levels, and a pulse of so many segments."""

    levels: int
    segments: int
    evolves: str
    precision: str

    @property
    def kind(self) -> Any:
        """As `evolve` calls it."""
        return self.evolves if self.evolves in ("ket", "unitary") else "density"

    @property
    def closed(self) -> bool:
        """Whether Schrödinger's equation is enough."""
        return self.kind != "density"

    @property
    def route(self) -> Route:
        """Both for all settings, in turn."""
        routes: tuple[Route, Route] = ("compiled", "torch")
        return routes[CASES.index(self) // 2 % 2]

    @property
    def short(self) -> bool:
        """Whether the reference takes less than half a second."""
        size = self.levels if self.closed else self.levels**2
        return self.segments * (20 + size**3) <= 250_000


AXES = ((2, 3, 4, 5, 6), (1, 2, 7, 40, 300, 2000), tuple(RATES), tuple(DTYPES))
CASES = [case for each in itertools.product(*AXES) if (case := Case(*each)).short]


class Drawn(NamedTuple):
    """A random system, arguments of `evolve`, and a direction in which all of them change."""

    system: kd.System
    operators: Operators
    values: Values
    directions: Values

    @classmethod
    def of(cls, case: Case) -> Drawn:
        """One or two terms in the drift, one to three controls, two jumps, and initial states or operators of any norm.

        The pulse turns a state by some radians, however many segments it has.
        """
        rng = np.random.default_rng(CASES.index(case))
        d, strength = case.levels, RATES[case.evolves]

        def normal(*shape: int) -> Array:
            result: Array = rng.normal(size=(*shape, 2)) @ [1, 1j]
            return result

        jumps = normal(2 if strength else 0, d, d) / np.sqrt(d)
        drift, controls = (normal(rng.integers(1, most), d, d) / np.sqrt(d) for most in (3, 4))
        drift, controls = (each + each.conj().swapaxes(1, 2) for each in (drift, controls))
        shape = {"ket": (d,), "unitary": (d, rng.integers(1, d + 1)), "density": (d, d)}[case.kind]
        values, directions = (
            {
                "controls": rng.normal(size=(case.segments, len(controls))),
                "parameters": rng.normal(size=len(drift)),
                "rates": strength * rng.uniform(0.1, 1, size=len(jumps)),
                "initial": normal(*shape),
                "duration": rng.uniform(0.5, 2, size=()),
            }
            for _ in range(2)
        )
        directions["controls"] *= np.sqrt(case.segments)  # or they would be lost in the sum
        if case.precision == "fp32":
            for arguments, name in itertools.product((values, directions), values):
                arguments[name] = arguments[name].astype(np.complex64 if name == "initial" else np.float32)
        terms = [
            {str(number): each for number, each in enumerate(stack)} for stack in (drift, controls, jumps)
        ]
        system = kd.System(terms[0], dict.fromkeys(terms[0], 1.0), *terms[1:])
        return cls(system, Operators(drift, controls, jumps), values, directions)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_a_random_system_evolves_as_dense_exponentials_say(case: Case) -> None:
    """The final state, and the derivative by everything at once."""
    system, operators, values, directions = Drawn.of(case)
    arguments = {name: torch.from_numpy(value).requires_grad_() for name, value in values.items()}
    if not RATES[case.evolves]:
        del arguments["rates"]
    state = kd.evolve(system, **arguments, kind=case.kind, route=case.route)
    tolerance = (250 + case.segments) * torch.finfo(DTYPES[case.precision]).eps
    expected = evolved(operators, values, case.closed)
    assert np.abs(state.detach().numpy() - expected).max() < tolerance * np.abs(expected).max()
    weights = torch.from_numpy(np.random.default_rng(1).normal(size=(2, *expected.shape)))
    loss = (state.real * weights[0] + state.imag * weights[1]).sum()
    gradients = dict(zip(arguments, torch.autograd.grad(loss, list(arguments.values())), strict=True))
    slope = sum(np.vdot(each.numpy(), directions[name]).real for name, each in gradients.items())
    tangent = derivative(operators, values, directions, case.closed)
    target = (tangent.real * weights[0].numpy() + tangent.imag * weights[1].numpy()).sum()
    assert abs(slope - target) < tolerance * np.linalg.norm(tangent)


@pytest.mark.parametrize(("name", "order"), [("euler", 1), ("rk4", 4), ("literal-euler", 1), ("literal", 4)])
def test_the_error_falls_with_the_order(name: str, order: int) -> None:
    system, operators, values, _ = Drawn.of(Case(3, 2, "usual", "fp64"))
    duration = float(values["duration"])
    tensors = {each: torch.from_numpy(value) for each, value in values.items()}
    tasks = Tasks(**tensors | {"controls": tensors["controls"][None], "duration": duration})
    exact = evolved(operators, values)
    coarse, fine = (
        np.abs(propagator(name, duration / 2 / steps).state(system, tasks)[0].numpy() - exact).max()
        for steps in (200, 400)
    )
    assert np.log2(coarse / fine) == pytest.approx(order, abs=0.1)
