"""A user's layer on a GPU: what it returns, shots, transforms, compiled programs, copies, QNodes, and refusals in words."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.func import functional_call, grad, vmap

from ketscale import Circuit, Layer
from ketscale.errors import UserError
from tests.nightly.gpu.circuits import random_circuit

pytestmark = pytest.mark.gpu

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
CIRCUIT = random_circuit(4, 2)
INPUTS = torch.randn(16, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
MEASURES: dict[str, dict[str, Any]] = {
    "expectation values": {"observables": ["ZIXY", {"XXII": 0.5, "IIIZ": -1.5}]},
    "probabilities": {"measure": "probs", "wires": [2, 0]},
    "states": {"measure": "state"},
}


def both(**arguments: Any) -> tuple[Layer, Layer]:
    """One layer on the CPU, in fp64, and a copy on the GPU."""
    here = Layer(CIRCUIT, dtype=torch.float64, **arguments)
    with torch.no_grad():
        here.weight.copy_(torch.linspace(0.3, 5, CIRCUIT.weights))
    return here, copy.deepcopy(here).to("cuda")


def real(values: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(values) if values.is_complex() else values


@pytest.mark.parametrize("measure", MEASURES)
def test_a_layer_gives_what_it_gives_on_the_cpu(measure: str) -> None:
    results = []
    for layer in both(**MEASURES[measure]):
        inputs = INPUTS.to(layer.weight.device).requires_grad_()
        values = real(layer(inputs))
        pull = torch.linspace(-1, 1, values.numel(), dtype=torch.float64).reshape(values.shape).to(values)
        gradients = torch.autograd.grad((values * pull).sum(), [inputs, layer.weight])
        results.append([part.detach().cpu() for part in (values, *gradients)])
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


def test_samples_and_gradients_from_shots() -> None:
    """Each estimate is within six of its own standard errors of the exact value."""
    words = ["ZIXY", "XXII"]
    exact, _ = both(observables=words)
    _, noisy = both(observables=words, shots=20_000)
    _, bits = both(measure="sample", shots=500)
    torch.manual_seed(0)
    values = noisy(INPUTS.cuda())
    expected = exact(INPUTS)
    errors = ((1 - expected.detach() ** 2).clamp_min(1e-12) / 20_000).sqrt()
    assert ((values.detach().cpu() - expected.detach()).abs() <= 6 * errors + 1e-9).all()
    by_shots = torch.autograd.grad(values.sum(), noisy.weight)[0].cpu()
    by_rule = torch.autograd.grad(expected.sum(), exact.weight)[0]
    assert (by_shots - by_rule).norm() <= 0.05 * max(1.0, float(by_rule.norm()))
    samples = bits(INPUTS.cuda())
    assert samples.shape == (16, 500, 4) and samples.is_cuda and set(samples.unique().tolist()) <= {0, 1}


def test_torch_func() -> None:
    here, there = both(observables=["ZIXY"])
    values = []
    for layer in (here, there):

        def value(weight: torch.Tensor, angles: torch.Tensor, layer: Layer = layer) -> torch.Tensor:
            return functional_call(layer, {"weight": weight}, (angles,)).sum()

        angles, weight = INPUTS.to(layer.weight.device), layer.weight.detach()
        members = torch.stack([weight, weight + 0.1])
        values.append(
            [
                vmap(grad(value), (None, 0))(weight, angles).cpu(),
                vmap(value, (0, None))(members, angles).cpu(),
                vmap(vmap(grad(value), (None, 0)), (0, None))(members, angles).cpu(),
            ]
        )
    torch.testing.assert_close(*values, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "ask", [lambda f, x: torch.func.hessian(f)(x), lambda f, x: torch.func.jvp(f, (x,), (x,))]
)
def test_second_derivatives_and_forward_mode(ask: Callable[..., Any]) -> None:
    values = []
    for layer in both(observables=["ZIXY"]):
        angles = INPUTS.to(layer.weight.device).requires_grad_()
        (slopes,) = torch.autograd.grad(layer(angles).sum(), angles, create_graph=True)
        by = torch.autograd.grad(slopes.sin().sum(), (angles, layer.weight))
        value = partial(functional_call, layer, args=(angles.detach(),))
        values.append([*by, ask(lambda w, value=value: value({"weight": w}).sum(), layer.weight.detach())])
    torch.testing.assert_close(*values, rtol=0, atol=1e-11, check_device=False)


@pytest.mark.skipif(TORCH < (2, 13), reason="circuits are constants of compiled programs from torch 2.13 on")
def test_a_compiled_layer() -> None:
    _, layer = both(observables=["ZIXY"])
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    inputs = INPUTS.cuda()
    result = compiled(inputs)
    torch.testing.assert_close(result, layer(inputs), rtol=0, atol=1e-13)
    by = [torch.autograd.grad(each.square().sum(), layer.weight)[0] for each in (result, layer(inputs))]
    torch.testing.assert_close(*by, rtol=0, atol=1e-12)


def test_copies_pickles_and_moves() -> None:
    _, layer = both(observables=["ZIXY"])
    inputs = INPUTS.cuda()
    values = layer(inputs)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer).cpu().cuda()):
        assert torch.equal(other(inputs), values)
    with pytest.raises(UserError, match=r"device|cuda"):
        layer(INPUTS)


def test_autocast() -> None:
    layer = Layer(CIRCUIT, ["ZIXY"]).cuda()
    inputs = INPUTS.float().cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        inside = layer(inputs.bfloat16())
    assert inside.dtype == torch.float32
    torch.testing.assert_close(inside, layer(inputs.bfloat16().float()), rtol=0, atol=1e-6)


def test_large_circuits_and_batches() -> None:
    """18 qubits go gate by gate; one call of a million samples needs more blocks than one dimension of a grid may have."""
    deep = Circuit(18)
    for wire in range(18):
        deep = deep.ry(wire, f"x{wire % 3}").rz(wire, f"w{wire % 2}").cnot(wire, (wire + 1) % 18)
    small = Circuit(2).ry(0, "x0").cnot(0, 1).rx(1, "w0")
    for circuit, batch in ((deep, 3), (small, 2**20)):
        here = Layer(circuit, dtype=torch.float64)
        there = copy.deepcopy(here).cuda()
        inputs = torch.randn(
            batch, circuit.inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
        )
        results = []
        for layer in (here, there):
            values = layer(inputs.to(layer.weight.device))
            results.append([values.detach().cpu(), torch.autograd.grad(values.mean(), layer.weight)[0].cpu()])
        torch.testing.assert_close(*results, rtol=0, atol=1e-11)


def test_a_qnode_with_tensors_of_the_gpu() -> None:
    qml = pytest.importorskip("pennylane")
    from ketscale import from_qnode
    from ketscale.interop.device import FusedDevice
    from ketscale.interop.tape_cache import REPEATS

    device = qml.device("default.qubit", wires=3)
    weights = torch.linspace(0.1, 2, 6, dtype=torch.float64).reshape(2, 3)
    result = []
    # PennyLane's own device cannot take many angles on a GPU at once (0.45), so its values are those on the CPU.
    for on, where in ((device, "cpu"), (FusedDevice(wires=3), "cuda"), (None, "cuda")):

        @qml.qnode(on or device, interface="torch")
        def node(x: torch.Tensor, w: torch.Tensor) -> Any:
            qml.RX(0.3, wires=0)
            qml.AngleEmbedding(x, wires=range(3))
            for layer in w:
                for wire in range(3):
                    qml.RY(layer[wire], wires=wire)
                qml.CNOT(wires=[0, 1])
                qml.CRX(layer[0], wires=[2, 0])
            return qml.expval(qml.PauliZ(0)), qml.expval(qml.PauliX(1) @ qml.PauliZ(2))

        x, w = INPUTS.to(where), weights.to(where).requires_grad_()
        called = node if on else from_qnode(node)
        # The last call is one of the device's record.
        for _ in range(REPEATS + 1):
            values = torch.stack(list(called(x, w)))
        result.append([values.detach().cpu(), torch.autograd.grad(values.sum(), w)[0].cpu()])
    for other in result[1:]:
        torch.testing.assert_close(other, result[0], rtol=0, atol=1e-10)


def test_default_qubit_on_a_gpu() -> None:
    pytest.importorskip("pennylane")
    here, there = both(observables=["ZIXY", "XXII"], simulator="default.qubit")
    values, expected = there(INPUTS.cuda()), here(INPUTS)
    torch.testing.assert_close(values.cpu(), expected, rtol=0, atol=1e-12)
    by = [
        torch.autograd.grad(each.sum(), layer.weight)[0]
        for each, layer in ((values, there), (expected, here))
    ]
    torch.testing.assert_close(by[0].cpu(), by[1], rtol=0, atol=1e-12)


def test_jax_on_a_gpu_is_answered_in_words() -> None:
    jax = pytest.importorskip("jax")
    import ketscale.jax

    value = ketscale.jax.expval(Circuit(2).ry(0, "x0").cnot(0, 1).rx(1, "w0"), ["ZI"])
    with jax.default_device(jax.devices("cpu")[0]):
        jax.jit(jax.grad(lambda x, w: value(x, w).sum()))(jax.numpy.ones((3, 1)), jax.numpy.ones(1))
    if jax.default_backend() == "cpu":
        pytest.skip("this JAX has no GPU")
    with pytest.raises(Exception, match=r"jax\.default_device"):
        jax.jit(value)(jax.numpy.ones((3, 1)), jax.numpy.ones(1))
