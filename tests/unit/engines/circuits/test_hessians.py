"""Second and third derivatives and forward mode of `fused`, against default.qubit, whose operations torch differentiates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

REFERENCE = named_simulator("default.qubit")
CIRCUIT = vqc_ansatz(3, 1)
Scalar = Callable[..., torch.Tensor]


def draws(*shape: int) -> torch.Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def points(circuit: Circuit, batch: int, kind: str) -> list[torch.Tensor]:
    """Inputs, weights, one more than there are, and what the kind of result starts from."""
    size = 2**circuit.qubits
    states = torch.complex(draws(batch, size), draws(batch, size) - 0.5)
    states = states / torch.linalg.vector_norm(states, dim=1, keepdim=True)
    more = {"prepared": [states], "superposed": [draws(2) * 1j, draws(size) + 0j]}.get(kind, [])
    return [draws(batch, circuit.inputs), draws(circuit.weights + 1), *more]


def scalar(simulator: Simulator, circuit: Circuit, kind: str) -> Scalar:
    """A function of a point whose derivatives never end."""
    words = tuple(letters[: circuit.qubits] for letters in ("ZIZ", "XYI", "IIZ"))

    def value(*given: torch.Tensor) -> torch.Tensor:
        angles, more = Angles(*given[:2]), given[2:]
        if kind == "state":
            amplitudes = simulator.state(circuit, angles)
            return (amplitudes * torch.arange(1, amplitudes.shape[1] + 1)).real.exp().sum()
        if kind == "superposed":
            return superposed(simulator, circuit, angles, words, Superposition(*more)).exp().sum()
        return simulator.expval(circuit, angles, words, *more).exp().sum()

    return value


def gradients(function: Scalar, given: Sequence[torch.Tensor], times: int) -> list[torch.Tensor]:
    """The gradients, those of a function of these, and so on."""
    leaves, values = [tensor.clone().requires_grad_() for tensor in given], []
    total = function(*leaves)
    for _ in range(times):
        slopes = torch.autograd.grad(total, leaves, create_graph=True, materialize_grads=True)
        total = sum((x.real.sin().sum() for x in slopes), start=torch.zeros(()))
        values += slopes
    return values


KINDS = ("words", "prepared", "state", "superposed")


@pytest.mark.parametrize("kind", KINDS)
def test_all_ways_to_ask(kind: str) -> None:
    given = points(CIRCUIT, 2, kind)
    inputs, weights = given[:2]
    along, result = tuple(tensor + 1 for tensor in given), list[list[Any]]()
    for each in (Fused(), REFERENCE):
        function = scalar(each, CIRCUIT, kind)

        def of(i: torch.Tensor, w: torch.Tensor, function: Scalar = function) -> torch.Tensor:
            return function(i, w, *given[2:])

        def moved(w: torch.Tensor, of: Scalar = of) -> Any:
            return jvp(hessian(lambda at: of(at, w)), (inputs,), (inputs + 1,))

        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(tensor, move) for tensor, move in zip(given, along, strict=True)]
            dual = forward_ad.unpack_dual(function(*duals)).tangent
        leaf = weights.clone().requires_grad_()
        (slope,) = torch.autograd.grad(of(inputs, leaf), leaf, create_graph=True)
        observables = [
            *gradients(function, given, 2), dual, jvp(function, tuple(given), along),
            jvp(grad(function, tuple(range(len(given)))), tuple(given), along),
            hessian(of, (0, 1))(inputs, weights), jacrev(jacrev(of, 1), 0)(inputs, weights),
            jacfwd(jacfwd(of, 0), 1)(inputs, weights),
            vmap(hessian(of, 1), (None, 0))(inputs, torch.stack([weights, weights + 1])),
            # A gradient of before, for many cotangents at once.
            vmap(lambda v, slope=slope, leaf=leaf: torch.autograd.grad(slope, leaf, v, retain_graph=True)[0])(
                torch.eye(len(weights)).double()),
        ]  # fmt: skip
        if kind in ("words", "prepared"):
            observables.append(jacrev(jacfwd(grad(of), 1), 1)(inputs, weights))
            observables.append(vmap(moved)(torch.stack([weights, weights + 1])))
        result.append(observables)
    torch.testing.assert_close(*result)


# Inputs and weights that turn one rotation each; inputs that turn several; and weights that do.
ONCE = Circuit(2).ry(0, "x0").cnot(0, 1).rx(1, "w0").s(1).xx(0, 1, "x1").rz(0, "w1").ry(0, "x2")
OTHERS: dict[str, tuple[Simulator, Circuit, int]] = {
    "several tiles": (Fused(), CIRCUIT, 21),
    "sample by sample": (looped(), CIRCUIT, 2),
    "amplitudes in another order": (Fused(), strongly_entangling_ansatz(3, 2), 1),
    "all gates": (Fused(), random_circuit(3, 0), 2),
    "permutations": (
        Fused(), Circuit(3).ry(0, "x0").toffoli(0, 2, 1).rx(2, "w0").permuted((2, 0, 3, 1), 2, 0), 3,
    ),
    "no samples": (Fused(), CIRCUIT, 0),
    "no inputs": (Fused(), Circuit(2).ry(0, "w0").cnot(0, 1).rx(1, "w1"), 2),
    "all once": (Fused(), ONCE, 3),
    "inputs several times": (Fused(), ONCE.ry(1, "x0").crx(1, 0, "x1"), 3),
    "weights several times": (Fused(), ONCE.ry(1, "w0").phase(0, "w1"), 3),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OTHERS)
def test_other_circuits_and_batches(name: str, kind: str) -> None:
    simulator, circuit, batch = OTHERS[name]
    arguments = points(circuit, batch, kind)
    along, times = tuple(tensor + 1 for tensor in arguments), 3 if "once" in name or "times" in name else 2
    actual, reference = (scalar(each, circuit, kind) for each in (simulator, REFERENCE))
    torch.testing.assert_close(gradients(actual, arguments, times), gradients(reference, arguments, times))
    result, expected = (
        jvp(lambda *x, f=f: jvp(f, x, along)[1], tuple(arguments), along)[1] for f in (actual, reference)
    )
    torch.testing.assert_close(result, expected)


def test_angles_that_turn_one_rotation_are_shifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """All derivatives by them are those of kernels."""
    monkeypatch.setattr(stepwise, "evaluate", lambda *arguments: pytest.fail("torch's operators"))
    arguments, value = points(ONCE, 3, "words"), scalar(Fused(), ONCE, "words")
    gradients(value, arguments, 2)
    hessian(value, (0, 1))(*arguments)
    jvp(hessian(value), tuple(arguments), tuple(arguments))
