"""A circuit as a layer of torch: what it measures, and whatever torch does with modules works."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from ketscale import Circuit, Layer
from ketscale.engines.circuits.ansaetze import strongly_entangling_ansatz
from ketscale.engines.circuits.circuit import pauli_words
from ketscale.errors import UserError
from ketscale.simulators.factory import named_simulator
from tests.unit.engines.circuits.dense import dense_unitary, dense_word
from tests.unit.engines.circuits.test_simulators import random_circuit
from tests.unit.interop.test_doors import CIRCUIT, OBSERVABLES, close, closed_form

# Forward mode starts with a part of torch that torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


def a_layer(simulator: str | None = None) -> Layer:
    torch.manual_seed(3)
    return Layer(CIRCUIT, OBSERVABLES, simulator=simulator, dtype=torch.float64)


def some(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def of_weight(layer: Layer) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The layer as a function of its weight and its inputs."""
    return lambda weight, inputs: functional_call(layer, {"weight": weight}, (inputs,))


def test_a_circuit_without_inputs_is_called_without_any() -> None:
    layer = Layer(Circuit(2).rx(0, "w0").cnot(0, 1), ["ZI", "IZ"], dtype=torch.float64)
    cosine = layer.weight.cos().expand(2)
    close(layer(), cosine)
    close(layer(torch.empty(3, 0, dtype=torch.float64)), cosine.expand(3, 2))
    (slope,) = torch.autograd.grad(layer().sum(), layer.weight)
    close(slope, -2 * layer.weight.sin().detach())


def test_weights_are_drawn_with_torchs_generator_from_a_whole_turn() -> None:
    torch.manual_seed(7)
    layer = Layer(strongly_entangling_ansatz(4, 50))
    first = layer.weight.detach().clone()
    layer.reset_parameters()
    torch.manual_seed(7)
    drawn = torch.rand(2, 600) * 2 * math.pi
    torch.testing.assert_close(first, drawn[0])
    torch.testing.assert_close(layer.weight.detach(), drawn[1])
    assert layer.weight.dtype == torch.float32


# --- what else is measured ---

DRAWN = random_circuit(3, 4)
SUMS = [{"ZZI": 0.5, "XXI": -1.0, "IYZ": 2.0}, "YIX", {"III": 2.0}]


def measuring(*arguments: Any, **named: Any) -> Layer:
    torch.manual_seed(3)
    return Layer(DRAWN, *arguments, dtype=torch.float64, **named)


def dense_states(layer: Layer, inputs: torch.Tensor) -> np.ndarray:
    return np.stack([dense_unitary(DRAWN, row, layer.weight.detach())[:, 0] for row in inputs])


@pytest.mark.parametrize("simulator", [None, "default.qubit"])
def test_what_is_measured_is_that_of_dense_matrices(simulator: str | None) -> None:
    inputs = some(4, DRAWN.inputs)
    layer = measuring(measure="state", simulator=simulator)
    states = dense_states(layer, inputs)
    found = layer(inputs).detach().numpy()
    phase = np.exp(1j * np.angle((found.conj() * states).sum(1)))[:, None]
    np.testing.assert_allclose(found * phase, states, atol=1e-12)
    squares = (np.abs(states) ** 2).reshape(4, 2, 2, 2)
    probs = measuring(measure="probs", wires=[2, 0], simulator=simulator)
    assert probs.outputs == 4
    # Wire 2 is the more significant bit.
    wanted = torch.tensor(squares.sum(2).transpose(0, 2, 1).reshape(4, 4))
    close(probs(inputs.reshape(2, 2, -1)).flatten(0, 1), wanted)
    for observables in (SUMS, None):
        layers = (measuring(observables, measure=each, simulator=simulator) for each in ("expval", "var"))
        means, variances = (layer(inputs).detach().numpy() for layer in layers)
        for column, terms in enumerate(observables or pauli_words(3)):
            items = {terms: 1.0} if isinstance(terms, str) else terms
            turned = states @ sum(c * dense_word(w) for w, c in items.items()).T
            wanted_mean = (states.conj() * turned).sum(1).real
            np.testing.assert_allclose(means[:, column], wanted_mean, atol=1e-12)
            wanted_variance = (np.abs(turned) ** 2).sum(1) - wanted_mean**2
            np.testing.assert_allclose(variances[:, column], wanted_variance, atol=1e-12)
        assert means.shape == variances.shape == (4, column + 1)


@pytest.mark.parametrize(
    "named", [{"measure": "probs", "wires": [1]}, {"measure": "var"}, {"measure": "state"}], ids=str
)
def test_gradients_of_what_is_measured_are_those_of_backprop(named: dict[str, Any]) -> None:
    """Under torch.func too."""
    slopes = []
    for simulator in (None, "default.qubit"):
        layer, inputs = measuring(simulator=simulator, **named), some(4, DRAWN.inputs).requires_grad_()
        values = layer(inputs).abs().square()
        loss = (values * torch.arange(values.shape[1])).sum()
        slopes.append(torch.autograd.grad(loss, (inputs, layer.weight)))
    close(*slopes)

    def loss_of(weight: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        values = functional_call(measured, {"weight": weight}, (angles,)).abs().square()
        return (values * torch.arange(values.shape[-1])).sum()

    measured = measuring(**named)
    each = vmap(grad(loss_of), (None, 0))(measured.weight.detach(), some(4, DRAWN.inputs))
    close(each.sum(0), slopes[0][1])


def test_no_rows_give_no_probabilities_and_no_samples() -> None:
    circuit, none = Circuit(2).ry(0, "x0").cnot(0, 1), torch.zeros(2, 0, 1)
    assert Layer(circuit, measure="probs", wires=[1])(none).shape == (2, 0, 2)
    assert Layer(circuit, ["XY"], measure="sample", shots=7)(none).shape == (2, 0, 7, 1)


def test_no_variance_is_below_zero_and_its_second_derivative_is_right_there() -> None:
    scaled = [{"Z": tenth / 10} for tenth in range(1, 10)]
    assert (Layer(Circuit(1).ry(0, "x0"), scaled, measure="var")(torch.zeros(1, 1)) >= 0).all()
    exact = Layer(
        Circuit(1).ry(0, "x0"), ["Z"], measure="var", simulator="default.qubit", dtype=torch.float64
    )
    # 1 - cos(x)^2, whose second derivative is 2 cos(2 x).
    points = math.pi * torch.arange(6.0, dtype=torch.float64)
    curvatures = torch.stack([hessian(lambda x: exact(x[None]).sum())(point[None]) for point in points])
    close(curvatures.flatten(), torch.full((6,), 2.0, dtype=torch.float64))


def test_samples_are_bits_or_values_and_repeat_with_torchs_seed() -> None:
    circuit, inputs = Circuit(2).ry(0, "x0").cnot(0, 1), torch.tensor([[0.0], [math.pi], [math.pi / 2]])
    bits = Layer(circuit, measure="sample", wires=[1, 0], shots=300)
    torch.manual_seed(0)
    drawn = bits(inputs)
    assert drawn.shape == (3, 300, 2) and drawn.dtype == torch.int64 and not drawn.requires_grad
    assert (drawn[0] == 0).all() and (drawn[1] == 1).all() and (drawn[2, :, 0] == drawn[2, :, 1]).all()
    assert 100 < drawn[2, :, 0].sum() < 200
    values = Layer(circuit, ["ZI", "ZZ"], measure="sample", shots=300)
    torch.manual_seed(0)
    # The same shots: ZI is -1 where the bit is 1, and ZZ is always 1.
    found = values(inputs)
    assert (found[0] == 1).all() and (found[1, :, 0] == -1).all() and (found[..., 1] == 1).all()
    assert not torch.equal(values(inputs)[2], found[2])
    frequencies = Layer(circuit, measure="probs", shots=300)(inputs)
    assert torch.equal(frequencies[:2], torch.eye(4)[[0, 3]]) and frequencies.sum(1).eq(1).all()


@pytest.mark.parametrize(
    "refused",
    [
        lambda: Layer(nn.Linear(2, 2)),
        lambda: Layer(CIRCUIT, simulator="defualt.qubit"),
        lambda: Layer(CIRCUIT, measure="counts"),
        lambda: Layer(CIRCUIT, ["ZI"], measure="probs"),
        lambda: Layer(CIRCUIT, measure="sample"),
        lambda: Layer(CIRCUIT, measure="probs", wires=[0, 2]),
        lambda: Layer(CIRCUIT, shots=0),
        lambda: Layer(CIRCUIT, "ZI"),
        lambda: Layer(CIRCUIT, ["Z"]),
        lambda: Layer(CIRCUIT, [{"ZI": math.nan}]),
        lambda: Layer(CIRCUIT, [{"ZI": 1j}]),
        lambda: a_layer()(some(4, 3)),
        lambda: a_layer()(torch.ones(4, 2, dtype=torch.int64)),
        lambda: a_layer()(some(4, 2).to("meta")),
        lambda: a_layer()([[1.0, 2.0]]),
        lambda: a_layer().half()(some(1, 2).half()),
    ],
)
def test_what_does_not_fit_is_refused(refused: Callable[[], object]) -> None:
    with pytest.raises(UserError):
        refused()


def test_a_coefficient_may_be_a_number_of_any_library() -> None:
    for number in (torch.tensor(0.5), np.float32(0.5), np.int64(2)):
        close(Layer(Circuit(1).h(0), [{"X": number}], dtype=torch.float64)().item(), float(number))


# --- what torch does with modules ---


def test_states_and_whole_layers_are_saved_and_loaded() -> None:
    layer, other, file = a_layer(), Layer(CIRCUIT, OBSERVABLES, dtype=torch.float64), io.BytesIO()
    assert list(layer.state_dict()) == [name for name, _ in layer.named_parameters()] == ["weight"]
    other.load_state_dict(layer.state_dict(), strict=True)
    layer(some(3, 2)).sum().backward()
    torch.save(layer, file)
    file.seek(0)
    wanted = closed_form(some(3, 2), layer.weight.detach().clone())
    with torch.no_grad():
        layer.weight.zero_()
    for each in (other, torch.load(file, weights_only=False)):
        close(each(some(3, 2)), wanted)


def test_a_conversion_keeps_the_coefficients_exact() -> None:
    layer = Layer(Circuit(1).ry(0, "x0"), [{"Z": 0.1}], dtype=torch.float64)
    there = layer.float()
    assert there(torch.zeros(1)).dtype == torch.float32
    assert there.double()(torch.zeros(1, dtype=torch.float64)).item() == 0.1
    assert there.to("cpu") is layer
    there.to("meta").to_empty(device="cpu")
    assert there(torch.zeros(1, dtype=torch.float64)).item() == 0.1


def test_the_workers_of_a_loader_can_call_a_layer() -> None:
    layer, rows = a_layer(), some(64, 2)
    # Large enough for several threads, which the workers do not inherit.
    layer(some(200_000, 2)).sum().backward()

    def collate(batch: list[torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            return layer(torch.stack(batch))

    loader = DataLoader(list(rows), batch_size=8, num_workers=2, collate_fn=collate, timeout=60)
    close(torch.cat(list(loader)), closed_form(rows, layer.weight).detach())


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_recomputes_it(reentrant: bool) -> None:
    layer, inputs = a_layer(), some(3, 2).requires_grad_()
    checkpoint(layer, inputs, use_reentrant=reentrant).pow(2).sum().backward()
    both = (inputs, layer.weight)
    close((inputs.grad, layer.weight.grad), torch.autograd.grad(closed_form(*both).pow(2).sum(), both))


def test_autocast_leaves_the_circuit_in_its_weights_precision() -> None:
    layer, first, inputs = a_layer().float(), nn.Linear(3, 2), some(4, 3).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        angles = first(inputs)
        values = layer(angles)
        with pytest.raises(UserError, match=r"torch\.int64"):
            layer(torch.ones(4, 2, dtype=torch.int64))
    assert angles.dtype == torch.bfloat16 and values.dtype == torch.float32
    values.pow(2).sum().backward()
    weight = layer.weight.detach().double().requires_grad_()
    bias = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    exact = closed_form(angles.detach().double() + bias, weight)
    torch.testing.assert_close(values.detach().double(), exact.detach(), atol=1e-6, rtol=0)
    wanted = torch.autograd.grad(exact.pow(2).sum(), (weight, bias))
    torch.testing.assert_close(layer.weight.grad.double(), wanted[0], atol=1e-5, rtol=0)
    # The gradient has come through the angles, which have few bits.
    torch.testing.assert_close(first.bias.grad.double(), wanted[1], atol=0.02, rtol=0.02)


def test_models_are_compiled_without_a_break_and_compute_the_same() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), a_layer(), nn.Tanh(), nn.Linear(3, 1)).double()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for rows in (4, 4, 7):
        inputs = some(rows, 3)
        found, wanted = compiled(inputs), model(inputs)
        close(found, wanted)
        close(
            torch.autograd.grad(found.pow(2).sum(), list(model.parameters())),
            torch.autograd.grad(wanted.pow(2).sum(), list(model.parameters())),
        )


# --- torch.func ---


def test_no_columns_and_no_rows_are_no_exception() -> None:
    fixed = Circuit(2).x(0)
    angle = Circuit(2).ry(0, "x0").ry(1, 0.5)
    turned = Circuit(2).ry(0, "w0").ry(1, 0.5)
    layers = [Layer(circuit, dtype=torch.float64) for circuit in (fixed, angle, turned)]
    nothing = torch.empty(3, 4, 0, dtype=torch.float64)
    close(vmap(layers[0])(nothing), torch.tensor([-1.0, 1.0], dtype=torch.float64).expand(3, 4, 2))
    x, w = some(3, 4, 1), some(3, 1)
    half = torch.full((3, 4, 1), math.cos(0.5), dtype=torch.float64)
    close(vmap(layers[1])(x), torch.cat([x.cos(), half], dim=2))
    wanted = torch.cat([w.cos()[:, None].expand(3, 4, 1), half], dim=2)
    close(vmap(of_weight(layers[2]))(w, nothing), wanted)
    close(vmap(lambda weight: functional_call(layers[2], {"weight": weight}, ()))(w), wanted[:, 0])
    # Gradients by what is not there, and of no rows.
    close(vmap(grad(lambda n: layers[0](n).sum()))(nothing), nothing)
    none = some(3, 0, 1)
    close(vmap(layers[1])(none), torch.empty(3, 0, 2, dtype=torch.float64))
    close(vmap(grad(lambda n: layers[1](n).sum()))(none), none)
    no_rows = vmap(grad(lambda weight: of_weight(layers[2])(weight, nothing[0, :0]).sum()))(w)
    close(no_rows, torch.zeros_like(w))


def dual(layer: Layer, inputs: torch.Tensor) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(layer(forward_ad.make_dual(inputs, torch.ones_like(inputs)))).tangent


def of_function(transform: Any) -> Callable[[Any, torch.Tensor], Any]:
    """A transform of the sum of the values as a function of the weight."""
    return lambda layer, x: transform(lambda w: of_weight(layer)(w, x).pow(3).sum())(layer.weight.detach())


@pytest.mark.parametrize(
    "beyond", [dual, of_function(hessian), of_function(jacfwd), of_function(lambda f: jacrev(jacrev(f)))]
)
def test_what_a_simulator_cannot_differentiate_names_those_that_can(beyond: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=r"first derivatives only: .*simulator 'fused' or 'default\.qubit'"):
        beyond(a_layer("lightning.qubit"), some(2, 2))


def test_third_derivatives_and_duals() -> None:
    inputs, third = some(2, 2), lambda f: jacrev(hessian(f))
    layer = a_layer("default.qubit")
    wanted = third(lambda w: closed_form(inputs, w).pow(3).sum())(layer.weight.detach())
    for each in (layer, a_layer("fused")):
        close(of_function(third)(each, inputs), wanted)
    along = jvp(lambda x: closed_form(x, layer.weight.detach()), (inputs,), (torch.ones_like(inputs),))[1]
    for each in (layer, a_layer("fused")):
        close(dual(each, inputs).detach(), along)


@pytest.mark.parametrize("name", ["lightning.qubit", "qiskit"])
def test_every_simulator_can_be_mapped(name: str) -> None:
    layer = Layer(CIRCUIT, OBSERVABLES, simulator=named_simulator(name), dtype=torch.float64)
    weights, inputs = some(2, 2), some(2, 3, 2)
    slopes = vmap(grad(lambda w, x: of_weight(layer)(w, x).pow(2).sum()))(weights, inputs)
    wanted = vmap(grad(lambda w, x: closed_form(x, w).pow(2).sum()))(weights, inputs)
    torch.testing.assert_close(slopes, wanted, atol=1e-9, rtol=1e-9)
