"""Second derivatives and forward mode of `fused`, against default.qubit, whose operations torch differentiates itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from ketscale.engines.circuits.ansaetze import strongly_entangling_ansatz, vqc_ansatz
from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.fused import Fused, looped, stepwise
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.circuits.superposition import Superposition, superposed
from ketscale.simulators.factory import named_simulator
from tests.unit.engines.circuits.test_simulators import random_circuit

# Torch's forward mode itself.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

WORDS = ("ZIZ", "XYI", "IIZ")
CIRCUIT = vqc_ansatz(3, 1)
Scalar = Callable[..., torch.Tensor]


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.rand(shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def points(circuit: Circuit, batch: int) -> list[torch.Tensor]:
    """Inputs, weights, and normalised initial states."""
    states = torch.complex(drawn(batch, 2**circuit.qubits), drawn(batch, 2**circuit.qubits) - 0.5)
    return [
        drawn(batch, circuit.inputs),
        drawn(circuit.weights),
        states / torch.linalg.vector_norm(states, dim=1, keepdim=True),
    ]


def scalar(simulator: Simulator, circuit: Circuit, state: bool, words: tuple[str, ...] = WORDS) -> Scalar:
    """A function of inputs, weights, and perhaps initial states, whose derivatives never end."""

    def value(*given: torch.Tensor) -> torch.Tensor:
        angles, initial = Angles(*given[:2]), given[2] if len(given) == 3 else None
        if state:
            amplitudes = simulator.state(circuit, angles, initial)
            return (amplitudes * torch.arange(1, amplitudes.shape[1] + 1)).real.exp().sum()
        return simulator.expval(circuit, angles, words, initial).exp().sum()

    return value


def twice(function: Scalar, given: list[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients, and the gradients of a sum of these in which each has another factor."""
    leaves = [tensor.clone().requires_grad_() for tensor in given]
    first = torch.autograd.grad(function(*leaves), leaves, create_graph=True)
    total = sum(
        ((x * torch.linspace(0.1, 1, x.numel()).view_as(x)).real.sum() for x in first), start=torch.zeros(())
    )
    return [*first, *torch.autograd.grad(total, leaves)]


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("prepared", [False, True])
def test_all_ways_to_ask(state: bool, prepared: bool) -> None:
    inputs, weights, states = points(CIRCUIT, 2)
    given = [inputs, weights, states][: 2 + prepared]
    along = tuple(tensor + 1 for tensor in given)
    found: list[list[Any]] = []
    for each in (Fused(), named_simulator("default.qubit")):
        function = scalar(each, CIRCUIT, state)

        def of_angles(i: torch.Tensor, w: torch.Tensor, function: Scalar = function) -> torch.Tensor:
            return function(i, w, *given[2:])

        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(tensor, move) for tensor, move in zip(given, along, strict=True)]
            dual = forward_ad.unpack_dual(function(*duals)).tangent
        found.append(
            [
                twice(function, given),
                dual,
                jvp(function, tuple(given), along),
                jvp(grad(function, tuple(range(len(given)))), tuple(given), along),
                hessian(of_angles, (0, 1))(inputs, weights),
                jacrev(jacrev(of_angles, 1), 0)(inputs, weights),
                jacfwd(jacfwd(of_angles, 0), 1)(inputs, weights),
                vmap(hessian(of_angles, 1), (None, 0))(inputs, torch.stack([weights, weights + 1])),
            ]
        )
    torch.testing.assert_close(*found)


OTHERS: dict[str, tuple[Simulator, Circuit, int]] = {
    "several tiles": (Fused("sweep"), CIRCUIT, 21),
    "one sample": (Fused(), CIRCUIT, 1),
    "as one matrix": (Fused("matrix"), CIRCUIT, 9),
    "sample by sample": (looped(), CIRCUIT, 2),
    "amplitudes in another order": (Fused(), strongly_entangling_ansatz(3, 2), 3),
    "all gates": (Fused(), random_circuit(3, 0), 2),
    "permutations": (
        Fused(),
        Circuit(3).ry(0, "x0").toffoli(0, 2, 1).rx(2, "w0").permuted((2, 0, 3, 1), 2, 0),
        3,
    ),
    "no samples": (Fused(), CIRCUIT, 0),
}


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_other_routes_and_circuits(name: str, state: bool) -> None:
    each, circuit, batch = OTHERS[name]
    given = points(circuit, batch)[: 2 + state]

    def moved(function: Scalar) -> torch.Tensor:
        along = tuple(tensor + 1 for tensor in given)
        found: torch.Tensor = jvp(lambda *x: jvp(function, x, along)[1], tuple(given), along)[1]
        return found

    ours, theirs = (scalar(each, circuit, state), scalar(named_simulator("default.qubit"), circuit, state))
    torch.testing.assert_close(twice(ours, given), twice(theirs, given))
    torch.testing.assert_close(moved(ours), moved(theirs))


def test_single_precision() -> None:
    given = points(CIRCUIT, 5)[:2]
    single = twice(scalar(Fused(), CIRCUIT, False), [tensor.float() for tensor in given])
    assert {tensor.dtype for tensor in single} == {torch.float32}
    double = twice(scalar(Fused(), CIRCUIT, False), given)
    torch.testing.assert_close(single, double, check_dtype=False, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("state", [False, True])
def test_a_gradient_of_before_is_differentiated_for_many_cotangents_at_once(state: bool) -> None:
    inputs, weights = points(CIRCUIT, 2)[:2]
    leaf = weights.clone().requires_grad_()
    (slope,) = torch.autograd.grad(scalar(Fused(), CIRCUIT, state)(inputs, leaf), leaf, create_graph=True)
    found = vmap(lambda v: torch.autograd.grad(slope, leaf, v, retain_graph=True)[0])(
        torch.eye(len(weights), dtype=torch.float64)
    )
    theirs = scalar(named_simulator("default.qubit"), CIRCUIT, state)
    torch.testing.assert_close(found, hessian(lambda w: theirs(inputs, w))(weights))


def test_weights_that_no_gate_has() -> None:
    inputs, weights = points(CIRCUIT, 2)[:2]
    more = torch.cat([weights, weights[:2]])
    expected = twice(scalar(Fused(), CIRCUIT, False), [inputs, weights])
    found = twice(scalar(Fused(), CIRCUIT, False), [inputs, more])
    torch.testing.assert_close([found[1][:-2], found[1][-2:]], [expected[1], torch.zeros(2).double()])
    assert not found[3][-2:].any()


# Inputs and weights that turn one rotation each; inputs that turn several; and weights that do.
ONCE = Circuit(2).ry(0, "x0").cnot(0, 1).rx(1, "w0").s(1).xx(0, 1, "x1").rz(0, "w1").ry(0, "x2")
SEVERAL = {
    "inputs": ONCE.ry(1, "x0").crx(1, 0, "x1"),
    "weights": ONCE.ry(1, "w0").phase(0, "w1"),
    "neither": ONCE,
}


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("several", SEVERAL)
def test_third_derivatives(several: str, prepared: bool) -> None:
    circuit, (inputs, weights, *state) = SEVERAL[several], points(SEVERAL[several], 3)[: 2 + prepared]
    results: list[list[Any]] = []
    for each in (Fused(), named_simulator("default.qubit")):
        function, orders = scalar(each, circuit, False, ("ZI", "XY", "IZ")), []
        leaves = [tensor.clone().requires_grad_() for tensor in (inputs, weights, *state)]
        total = function(*leaves)
        for _ in range(3):
            slopes = torch.autograd.grad(total, leaves, create_graph=True)
            total = sum((x.real.sin().sum() for x in slopes), start=torch.zeros(()))
            orders += slopes

        def of(x: torch.Tensor, w: torch.Tensor, function: Scalar = function) -> torch.Tensor:
            return function(x, w, *state)

        def moved(w: torch.Tensor, of: Scalar = of) -> Any:
            return jvp(hessian(lambda at: of(at, w)), (inputs,), (inputs + 1,))

        mixed = jacrev(jacfwd(grad(of), 1), 1)(inputs, weights)
        mapped = vmap(moved)(torch.stack([weights, weights + 1]))
        results.append([*orders, mixed, mapped])
    torch.testing.assert_close(*results)


def test_angles_that_turn_one_rotation_are_shifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """All derivatives by them are those of kernels."""
    monkeypatch.setattr(stepwise, "evaluate", lambda *given: pytest.fail("torch's operators"))
    inputs, weights = points(ONCE, 3)[:2]
    value = scalar(Fused(), ONCE, False, ("ZI", "XY"))
    twice(value, [inputs, weights])
    hessian(value, (0, 1))(inputs, weights)
    jvp(hessian(value), (inputs, weights), (inputs, weights))


@pytest.mark.parametrize("circuit", [CIRCUIT, strongly_entangling_ansatz(3, 1)])
def test_superpositions(circuit: Circuit) -> None:
    """Amplitudes are in their true order, or in another one."""
    given = [*points(circuit, 2)[:2], drawn(2).to(torch.complex128) * 1j, drawn(8).to(torch.complex128)]

    def asked(simulator: Simulator) -> list[Any]:
        def value(*tensors: torch.Tensor) -> torch.Tensor:
            superposition = Superposition(*tensors[2:])
            return superposed(simulator, circuit, Angles(*tensors[:2]), WORDS, superposition).exp().sum()

        def of_angles(inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            return value(inputs, weights, *given[2:])

        angles = tuple(given[:2])
        return [twice(value, given), hessian(of_angles, (0, 1))(*angles), jvp(of_angles, angles, angles)]

    torch.testing.assert_close(asked(Fused()), asked(named_simulator("default.qubit")))
