"""A circuit as a layer of torch: what it measures, and whatever torch does with modules works."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from qiskit.circuit.library import real_amplitudes, zz_feature_map
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
from torch.utils.data import DataLoader

from ketscale import Circuit, Layer, from_qiskit
from ketscale.engines.circuits.ansaetze import strongly_entangling_ansatz
from ketscale.engines.circuits.circuit import pauli_words
from ketscale.errors import UserError
from tests.unit.engines.circuits.dense import dense_word, final_states
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


def test_weights_are_drawn_with_torchs_generator_from_a_whole_turn() -> None:
    torch.manual_seed(7)
    layer = Layer(strongly_entangling_ansatz(4, 50))
    first = layer.weight.detach().clone()
    layer.reset_parameters()
    torch.manual_seed(7)
    noise = torch.rand(2, 600) * 2 * math.pi
    torch.testing.assert_close(torch.stack([first, layer.weight.detach()]), noise)


# --- what is measured ---

DRAWN = random_circuit(3, 4)
SUMS = [{"ZZI": 0.5, "XXI": -1.0, "IYZ": 2.0}, "YIX", {"III": 2.0}]


def dense(states: torch.Tensor, measure: str, observables: Any, wires: Any = None) -> torch.Tensor:
    """What is measured in states (rows, 8)."""
    if measure == "state":
        return states
    if measure == "probs":
        # The first wire is the most significant bit.
        others = [wire for wire in range(3) if wire not in wires]
        squares = (
            states.abs().square().view(-1, 2, 2, 2).permute(0, *(wire + 1 for wire in [*wires, *others]))
        )
        return squares.reshape(len(states), 2 ** len(wires), -1).sum(2)
    values = []
    for terms in observables or pauli_words(3):
        items = {terms: 1.0} if isinstance(terms, str) else terms
        rotated = states @ torch.from_numpy(sum(c * dense_word(w) for w, c in items.items())).T
        values.append((states.conj() * rotated).sum(1).real)
    return torch.stack(values, 1)


MEASURED: list[dict[str, Any]] = [
    {"measure": "state"},
    {"measure": "probs", "wires": [2, 0]},
    *({"measure": "expval", "observables": each} for each in (SUMS, None)),
]


@pytest.mark.parametrize("simulator", [None, "default.qubit"])
@pytest.mark.parametrize("asked", MEASURED, ids=str)
def test_what_is_measured_is_that_of_dense_matrices(asked: dict[str, Any], simulator: str | None) -> None:
    """Values and gradients, under torch.func too."""
    torch.manual_seed(3)
    layer = Layer(DRAWN, simulator=simulator, dtype=torch.float64, **asked)
    inputs, weight = some(4, DRAWN.inputs).requires_grad_(), layer.weight.detach().clone().requires_grad_()
    expected = dense(
        final_states(DRAWN, inputs, weight), asked["measure"], asked.get("observables"), asked.get("wires")
    )
    result = layer(inputs.view(2, 2, -1)).flatten(0, 1)
    assert result.shape == (4, layer.outputs)
    close(result, expected, check_dtype=False)

    def loss(values: torch.Tensor) -> torch.Tensor:
        return (values.abs().square() * torch.arange(values.shape[-1])).sum()

    slopes = torch.autograd.grad(loss(expected), (inputs, weight))
    close(torch.autograd.grad(loss(result), (inputs, layer.weight)), slopes)
    if simulator is None:
        each = vmap(grad(lambda w, x: loss(of_weight(layer)(w, x))), (None, 0))
        close(each(weight.detach(), inputs.detach()).sum(0), slopes[1])


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
    result = values(inputs)
    assert (result[0] == 1).all() and (result[1, :, 0] == -1).all() and (result[..., 1] == 1).all()
    assert not torch.equal(values(inputs)[2], result[2])
    frequencies = Layer(circuit, measure="probs", shots=300)(inputs)
    assert torch.equal(frequencies[:2], torch.eye(4)[[0, 3]]) and frequencies.sum(1).eq(1).all()


@pytest.mark.parametrize(
    "refused",
    [
        lambda: Layer(nn.Linear(2, 2)), lambda: Layer(CIRCUIT, simulator="defualt.qubit"), lambda: Layer(CIRCUIT, shots=0),
        lambda: Layer(CIRCUIT, measure="counts"), lambda: Layer(CIRCUIT, ["ZI"], measure="probs"),
        lambda: Layer(CIRCUIT, measure="sample"), lambda: Layer(CIRCUIT, measure="probs", wires=[0, 2]),
        *(lambda words=words: Layer(CIRCUIT, words) for words in ("ZI", ["Z"], [{"ZI": math.nan}], [{"ZI": 1j}])),
        *(lambda x=x: a_layer()(x) for x in (some(4, 3), torch.ones(4, 2).long(), some(4, 2).to("meta"), [[1.0, 2.0]])),
        lambda: a_layer().half()(some(1, 2).half()),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(refused: Callable[[], object]) -> None:
    with pytest.raises(UserError):
        refused()


def test_a_coefficient_may_be_a_number_of_any_library_and_stays_exact() -> None:
    for number in (torch.tensor(0.5), np.float32(0.5), np.int64(2)):
        close(Layer(Circuit(1).h(0), [{"X": number}], dtype=torch.float64)().item(), float(number))
    layer = Layer(Circuit(1).ry(0, "x0"), [{"Z": 0.1}], dtype=torch.float64)
    there = layer.float()
    assert there(torch.zeros(1)).dtype == torch.float32
    assert there.double()(torch.zeros(1, dtype=torch.float64)).item() == 0.1
    there.to("meta").to_empty(device="cpu")
    assert there(torch.zeros(1, dtype=torch.float64)).item() == 0.1


# --- what torch does with modules ---


def test_the_workers_of_a_loader_can_call_a_layer() -> None:
    layer, rows = a_layer(), some(64, 2)
    assert list(layer.state_dict()) == [name for name, _ in layer.named_parameters()] == ["weight"]
    # Large enough for several threads, which the workers do not inherit.
    layer(some(200_000, 2)).sum().backward()

    def collate(batch: list[torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            return layer(torch.stack(batch))

    loader = DataLoader(list(rows), batch_size=8, num_workers=2, collate_fn=collate, timeout=60)
    close(torch.cat(list(loader)), closed_form(rows, layer.weight).detach())


def test_autocast_leaves_the_circuit_in_its_weights_precision() -> None:
    layer, inputs = a_layer().float(), some(4, 2).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = layer(inputs)
        with pytest.raises(UserError, match=r"torch\.int64"):
            layer(torch.ones(4, 2, dtype=torch.int64))
    exact = [x.detach().double().requires_grad_() for x in (inputs, layer.weight)]
    torch.testing.assert_close(values, closed_form(*exact).float(), atol=1e-6, rtol=0)
    expected = torch.autograd.grad(closed_form(*exact).pow(2).sum(), exact)
    gradients = torch.autograd.grad(values.pow(2).sum(), (inputs, layer.weight))
    # One gradient has as few bits as the inputs.
    torch.testing.assert_close(gradients[0].double(), expected[0], atol=0.02, rtol=0.02)
    torch.testing.assert_close(gradients[1].double(), expected[1], atol=1e-5, rtol=0)


def test_a_layer_of_qiskits_is_exported_before_it_is_called() -> None:
    layer, inputs = (
        Layer(from_qiskit(zz_feature_map(2).compose(real_amplitudes(2, reps=1)), "x")),
        torch.rand(4, 2),
    )
    exported = torch.export.export(layer, (inputs,)).module()
    assert torch.equal(exported(inputs), layer(inputs))


def test_models_are_compiled_without_a_break_and_compute_the_same() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), a_layer(), nn.Tanh(), nn.Linear(3, 1)).double()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for rows in (4, 4, 7):
        value, target = (each(some(rows, 3)) for each in (compiled, model))
        close(value, target)
        close(*(torch.autograd.grad(each.pow(2).sum(), list(model.parameters())) for each in (value, target)))


def test_no_columns_and_no_rows_are_no_exception() -> None:
    fixed, angle, turned = (
        Layer(circuit, dtype=torch.float64)
        for circuit in (Circuit(2).x(0), Circuit(2).ry(0, "x0").ry(1, 0.5), Circuit(2).ry(0, "w0").ry(1, 0.5))
    )
    assert repr(angle) == "Layer(qubits=2, gates=2, expval['ZI', 'IZ'])"
    empty = torch.empty(3, 4, 0, dtype=torch.float64)
    close(vmap(fixed)(empty), torch.tensor([-1.0, 1.0], dtype=torch.float64).expand(3, 4, 2))
    x, w = some(3, 4, 1), some(3, 1)
    half = torch.full((3, 4, 1), math.cos(0.5), dtype=torch.float64)
    close(vmap(angle)(x), torch.cat([x.cos(), half], dim=2))
    expected = torch.cat([w.cos()[:, None].expand(3, 4, 1), half], dim=2)
    close(vmap(of_weight(turned))(w, empty), expected)
    close(turned(), torch.cat([turned.weight.cos(), half[0, 0]]))
    close(vmap(lambda weight: functional_call(turned, {"weight": weight}, ()))(w), expected[:, 0])
    # Gradients by what is not there, and of no rows.
    close(vmap(grad(lambda n: fixed(n).sum()))(empty), empty)
    none = some(3, 0, 1)
    close(vmap(grad(lambda n: angle(n).sum()))(none), none)
    close(vmap(grad(lambda weight: of_weight(turned)(weight, empty[0, :0]).sum()))(w), torch.zeros_like(w))
    assert Layer(angle.circuit, measure="probs", wires=[1])(torch.zeros(2, 0, 1)).shape == (2, 0, 2)
    assert Layer(angle.circuit, ["XY"], measure="sample", shots=7)(torch.zeros(2, 0, 1)).shape == (2, 0, 7, 1)


def dual(layer: Layer, inputs: torch.Tensor) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(layer(forward_ad.make_dual(inputs, torch.ones_like(inputs)))).tangent


def of_function(transform: Any) -> Callable[[Any, torch.Tensor], Any]:
    """A transform of the sum of the values as a function of the weight."""
    return lambda layer, x: transform(lambda w: of_weight(layer)(w, x).pow(3).sum())(layer.weight.detach())


@pytest.mark.parametrize(
    "beyond", [dual, of_function(hessian), of_function(jacfwd), of_function(lambda f: jacrev(jacrev(f)))]
)
@pytest.mark.parametrize("name", ["lightning.qubit", "qiskit", "default.qubit-jit"])
def test_a_simulator_that_knows_no_transforms_names_the_one_that_does(
    beyond: Callable[..., Any], name: str
) -> None:
    with pytest.raises(UserError, match="simulator 'fused'"):
        beyond(a_layer(name), some(2, 2))
