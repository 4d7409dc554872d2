"""The PennyLane device ketscale.fused gives what default.qubit gives, in every interface, or refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pennylane as qml
import pytest
import torch
from pennylane import numpy as pnp
from pennylane.exceptions import DeviceError, QuantumFunctionError

from ketscale.interop import known
from ketscale.interop.device import FusedDevice

WIRES = 4


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tapes that can be recorded are, at their first call."""
    monkeypatch.setattr(known, "REPEATS", 1)


def device(**settings: Any) -> Any:
    return FusedDevice(wires=WIRES, **settings)


def reference(**settings: Any) -> Any:
    return qml.device("default.qubit", wires=WIRES, **settings)


def layers(x: Any, w: Any) -> None:
    """Gates that `fused` has, and templates that it has not."""
    qml.AngleEmbedding(x, wires=range(WIRES), rotation="Y")
    qml.StronglyEntanglingLayers(w[:2], wires=range(WIRES))
    qml.CRX(w[0, 0, 0], wires=[3, 1])
    qml.ctrl(qml.RY, control=[0, 1])(w[1, 0, 1], wires=2)
    qml.adjoint(qml.S)(2)
    qml.Toffoli(wires=[0, 1, 2])
    qml.QFT(wires=[1, 2, 3])
    qml.MultiRZ(w[0, 1, 2], wires=[0, 2, 3])
    qml.GlobalPhase(w[0, 0, 1])
    qml.SingleExcitation(w[1, 2, 0], wires=[0, 3])


MEASURED = {
    "paulis": lambda: [qml.expval(qml.Z(0)), qml.expval(qml.X(1) @ qml.Y(3)), qml.expval(qml.I(2))],
    "sum": lambda: qml.expval(qml.Hamiltonian([0.3, -1.2, 2.0], [qml.Z(0), qml.X(1) @ qml.Z(2), qml.I(0)])),
    "composed": lambda: qml.expval(0.5 * (qml.X(0) + 2 * qml.Z(1)) @ qml.Y(2) - qml.Z(3)),
    "hermitian": lambda: qml.expval(qml.Hermitian(np.array([[1, 2j], [-2j, 0.5]]), wires=1)),
    "projector": lambda: qml.expval(qml.Projector([0, 1], wires=[0, 2])),
    "variance": lambda: qml.var(qml.X(0) @ qml.Z(1)),
    "probabilities": lambda: qml.probs(wires=[2, 0]),
    "of an observable": lambda: qml.probs(op=qml.X(1)),
    "state": lambda: qml.state(),
    "density matrix": lambda: qml.density_matrix([1, 3]),
    "purity": lambda: qml.purity(wires=[0]),
    "entropy": lambda: qml.vn_entropy(wires=[0, 1]),
    "mixed": lambda: (qml.expval(qml.Z(0)), qml.probs(wires=1), qml.var(qml.Y(2))),
}


def arguments(batch: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.normal(size=(*batch, WIRES)), rng.normal(size=(2, WIRES, 3))


def circuit(measured: str) -> Any:
    def function(x: Any, w: Any) -> Any:
        layers(x, w)
        return MEASURED[measured]()

    return function


def scalar(results: Any, library: Any) -> Any:
    """A real number that depends on every entry of the results, complex ones by both parts."""
    rows = results if isinstance(results, (list, tuple)) else [results]
    total = 0
    for row in rows:
        flat = library.reshape(row, (-1,))
        number = flat.numel() if isinstance(flat, torch.Tensor) else flat.size
        factors = library.asarray(np.cos(np.arange(number)))
        total = total + (factors * library.real(flat)).sum()
        if "complex" in str(flat.dtype):
            total = total + (factors * library.real(1j * flat)).sum()
    return total


def same(function: Callable[..., Any], *given: Any, **settings: Any) -> Any:
    """Compare results and gradients in torch with those of default.qubit; return the device's."""
    found = []
    for each, named in ((device(), settings), (reference(), {})):
        leaves = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in given]
        results = qml.QNode(function, each, **named)(*leaves)
        found.append((results, torch.autograd.grad(scalar(results, torch), leaves)))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-10)
    return found[0]


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("measured", MEASURED)
def test_torch(measured: str, batch: tuple[int, ...]) -> None:
    same(circuit(measured), *arguments(batch))


# default.qubit's own backpropagation in autograd casts complex numbers.
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize(
    ("measured", "batch"),
    [("paulis", ()), ("composed", (3,)), ("hermitian", (3,)), ("state", ()), ("mixed", (3,))],
)
def test_autograd(measured: str, batch: tuple[int, ...]) -> None:
    found = []
    for each in (device(), reference()):
        x, w = (pnp.array(value, requires_grad=True) for value in arguments(batch))
        qnode = qml.QNode(circuit(measured), each)

        def loss(x: Any, w: Any, qnode: Any = qnode) -> Any:
            return scalar(qnode(x, w), pnp)

        found.append((loss(x, w), *qml.grad(loss)(x, w)))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("measured", "jit", "batch"), [("state", False, ()), ("mixed", True, (3,))])
def test_jax(exact_jax: Any, measured: str, jit: bool, batch: tuple[int, ...]) -> None:
    """Against default.qubit in torch."""
    jax = exact_jax
    qnode = qml.QNode(circuit(measured), device(), interface="jax")
    both = jax.value_and_grad(lambda x, w: scalar(qnode(x, w), jax.numpy), argnums=(0, 1))
    found = (jax.jit(both) if jit else both)(*map(jax.numpy.asarray, arguments(batch)))
    x, w = (torch.tensor(value, requires_grad=True) for value in arguments(batch))
    value = scalar(qml.QNode(circuit(measured), reference())(x, w), torch)
    expected = value.detach(), torch.autograd.grad(value, [x, w])
    for mine, theirs in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-10)


def test_coefficients_and_matrices_of_observables_are_differentiated() -> None:
    """The fused route knows none: they must not lose their gradients on the way."""
    x, w = arguments(())

    def function(factors: Any) -> Any:
        layers(x, w)
        total = qml.Hamiltonian(factors, [qml.Z(0), qml.X(1)]), qml.s_prod(factors[0], qml.Y(2))
        return tuple(map(qml.expval, total))

    _, (by_torch,) = same(function, [0.3, 0.7])
    assert abs(by_torch).min() > 1e-3

    def measured(h: Any) -> Any:
        qml.RX(0.4, wires=0)
        qml.RY(0.3, wires=0)
        return qml.expval(qml.Hermitian(h, wires=0))

    for made, values in ((function, [0.3, 0.7]), (measured, [[0.3, 0.2], [0.2, -1.0]])):
        qnodes = [qml.QNode(made, each) for each in (device(), reference())]
        at = pnp.array(values, requires_grad=True)
        np.testing.assert_allclose(
            *(qml.grad(lambda f, q=q: scalar(q(f), pnp))(at) for q in qnodes), atol=1e-10
        )


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's forward mode itself
def test_second_derivatives_are_exact_or_parameter_shifts() -> None:
    def function(x: Any) -> Any:
        qml.RX(x[0], wires=0)
        qml.RY(x[1], wires=0)
        return qml.expval(qml.Z(0))

    x = pnp.array([0.3, 0.5], requires_grad=True)
    cosines, sines = np.cos(x), np.sin(x)
    expected = [
        [-cosines[0] * cosines[1], sines[0] * sines[1]],
        [sines[0] * sines[1], -cosines[0] * cosines[1]],
    ]
    by_shifts = qml.QNode(function, device(), max_diff=2)
    np.testing.assert_allclose(qml.jacobian(qml.grad(by_shifts))(x), expected, atol=1e-10)
    with pytest.raises(QuantumFunctionError, match="does not support adjoint"):
        qml.QNode(function, device(), diff_method="adjoint", max_diff=2)(x)
    leaf, qnode = torch.tensor([0.3, 0.5], dtype=torch.float64), qml.QNode(function, device(), max_diff=2)
    with qml.Tracker(qnode.device) as tracker:
        np.testing.assert_allclose(torch.func.hessian(qnode)(leaf), expected, atol=1e-10)
    # By the device itself, without shifted circuits.
    assert tracker.totals["simulations"] == 1


def test_samples() -> None:
    """Their distribution is the exact one's; 5 standard deviations of 20,000 samples are allowed."""
    x, w = arguments(())
    exact = qml.QNode(circuit("probabilities"), device())(x, w)

    @qml.qnode(device(seed=1), shots=20_000)
    def sampled(x: Any, w: Any) -> Any:
        layers(x, w)
        return (
            qml.probs(wires=[2, 0]),
            qml.counts(wires=[2, 0]),
            qml.sample(wires=[2, 0]),
            qml.expval(qml.X(1)),
        )

    probabilities, counts, samples, value = sampled(x, w)
    assert sum(counts.values()) == len(samples) == 20_000
    allowed = 5 * np.sqrt(exact * (1 - exact) / 20_000)
    drawn = np.bincount(samples @ [2, 1], minlength=4), [counts.get(f"{k:02b}", 0) for k in range(4)]
    for found in (probabilities, *(np.array(each) / 20_000 for each in drawn)):
        assert (abs(found - exact) <= allowed).all()
    mean = qml.QNode(lambda x, w: (layers(x, w), qml.expval(qml.X(1)))[1], device())(x, w)
    assert abs(value - mean) <= 5 / np.sqrt(20_000)
    again = [qml.set_shots(qml.QNode(circuit("paulis"), device(seed=5)), 100)(x, w) for _ in range(2)]
    np.testing.assert_array_equal(*again)


def test_gradients_with_shots_are_parameter_shifts() -> None:
    qnode = qml.set_shots(
        qml.QNode(lambda x: (qml.RX(x, wires=0), qml.expval(qml.Z(0)))[1], device(seed=2)), 50_000
    )
    x = pnp.array(0.7, requires_grad=True)
    assert qml.grad(qnode)(x) == pytest.approx(-np.sin(0.7), abs=5 / np.sqrt(50_000))


def test_wires_have_any_names_and_may_be_left_out() -> None:
    for wires in (["a", "b", 7], None):

        @qml.qnode(FusedDevice(wires=wires))
        def qnode() -> Any:
            qml.X(7)
            qml.CNOT(wires=[7, "b"])
            return qml.expval(qml.Z("b")), qml.expval(qml.Z("a")), qml.probs(wires=["a", 7])

        b, a, both = qnode()
        assert (b, a) == (-1, 1)
        np.testing.assert_allclose(both, [0, 1, 0, 0], atol=1e-15)


def test_a_batch_of_operations_that_take_no_batch() -> None:
    """PennyLane has no broadcast decomposition of a doubly controlled RX: its samples run one by one."""

    def function(x: Any) -> Any:
        qml.Hadamard(0)
        qml.Hadamard(1)
        qml.ctrl(qml.RX(x, wires=2), control=[0, 1])
        qml.ctrl(qml.Rot(x, x, 2 * x, wires=3), control=[1])
        return qml.expval(qml.Z(2)), qml.expval(qml.X(3))

    same(function, [0.3, 0.9])


class OneByOne(qml.operation.Operation):
    """A rotation whose decomposition looks at its angle, which a batch of angles does not allow."""

    num_wires, num_params, ndim_params = 1, 1, (0,)

    def decomposition(self) -> list[Any]:
        (angle,) = self.parameters
        return [qml.RX(angle if angle > 0.4 else 2 * angle, wires=self.wires)]


def test_samples_that_run_one_by_one_are_announced() -> None:
    @qml.qnode(device())
    def qnode(x: Any) -> Any:
        OneByOne(x, wires=0)
        return qml.expval(qml.Z(0))

    x = torch.tensor([0.3, 0.5], dtype=torch.float64, requires_grad=True)
    with pytest.warns(UserWarning, match="runs 2 samples one by one"):
        values = qnode(x)
    expected = torch.cos(x * torch.tensor([2.0, 1.0]))
    torch.testing.assert_close(values, expected)
    gradients = (torch.autograd.grad(each.sum(), x)[0] for each in (values, expected))
    torch.testing.assert_close(*gradients)
    qnode(x[:1])  # a batch of one is one sample, and no warning


def turned(t: Any) -> Any:
    """A real symmetric matrix."""
    return qml.math.stack([qml.math.stack([t[0], t[1]]), qml.math.stack([t[1], -t[0]])])


def variance(t: Any) -> Any:
    return qml.var(qml.Hermitian(turned(t), 0))


def evolved(t: Any) -> Any:
    qml.evolve(qml.Hermitian(turned(t), 0), 0.3)
    return qml.expval(qml.Z(0))


def expected(t: Any) -> Any:
    qml.RX(t[0], wires=0)
    return qml.expval(qml.Hermitian(turned(t), 0))


@pytest.mark.parametrize(
    ("program", "library", "settings", "message"),
    [
        (variance, "torch", {}, "expectation values alone by the matrix"),
        (variance, "autograd", {}, "expectation values alone by the matrix"),
        (variance, "jax", {}, "expectation values alone by the matrix"),
        (evolved, "torch", {}, "interface='torch'"),
        (expected, "torch", {"diff_method": "adjoint"}, "scalars alone"),
    ],
)
def test_gradients_that_pennylane_would_lose_are_refused(
    program: Any, library: str, settings: Any, message: str, exact_jax: Any
) -> None:
    qnode = qml.QNode(program, device(), **settings)
    at = [0.4, -0.7]
    slopes: dict[str, Callable[[], Any]] = {
        "torch": lambda: qnode(torch.tensor(at, dtype=torch.float64, requires_grad=True)).backward(),
        "autograd": lambda: qml.grad(qnode)(pnp.array(at, requires_grad=True)),
        "jax": lambda: exact_jax.grad(qnode)(exact_jax.numpy.array(at)),
    }
    with pytest.raises(DeviceError, match=message):
        slopes[library]()


class Nameless(qml.operation.Operation):
    num_wires, num_params = 1, 0


@pytest.mark.parametrize(
    ("run", "error", "message"),
    [
        (lambda: Nameless(wires=0), DeviceError, "Nameless.* not supported with ketscale.fused"),
        (lambda: qml.X(9), qml.exceptions.WireError, "ketscale.fused as they contain wires not found"),
        (lambda: qml.measure(0, postselect=1), ValueError, "Postselection is not allowed"),
    ],
)
def test_what_it_cannot_do_is_refused(run: Any, error: Any, message: str) -> None:
    @qml.qnode(FusedDevice(wires=2))
    def qnode() -> Any:
        run()
        return qml.expval(qml.Z(0))

    with pytest.raises(error, match=message):
        qnode()


@pytest.mark.parametrize("method", ["adjoint", "backprop", "parameter-shift"])
def test_ways_to_differentiate_by_name(method: str) -> None:
    same(circuit("mixed"), *arguments(()), interface="torch", diff_method=method)


def of_angle(t: Any) -> Any:
    """RX(t) as a matrix."""
    cosine, sine = torch.cos(t / 2) + 0j, -1j * torch.sin(t / 2)
    return torch.stack([torch.stack([cosine, sine], -1), torch.stack([sine, cosine], -1)], -2)


DEGENERATE: dict[str, Callable[[Any], Any]] = {
    "phase": lambda t: qml.ctrl(qml.PhaseShift(t, 0), [1, 2]),
    "phase of zeros": lambda t: qml.ctrl(qml.PhaseShift(t, 0), [1, 2, 3], control_values=[0, 1, 0]),
    "rotation": lambda t: qml.ctrl(qml.Rot(t, 2 * t, -t, 0), [1, 2]),
    "u3": lambda t: qml.ctrl(qml.U3(t, 2 * t, -t, 0), [1, 2]),
    "backwards": lambda t: qml.ctrl(qml.adjoint(qml.Rot(t, 2 * t, -t, 0)), [1, 2]),
    "global phase": lambda t: qml.ctrl(qml.GlobalPhase(t), [1, 2]),
    "unitary": lambda t: qml.QubitUnitary(of_angle(t), 0),
    "controlled unitary": lambda t: qml.ControlledQubitUnitary(of_angle(t), wires=[1, 0], control_values=[0]),
    "evolution": lambda t: qml.evolve(qml.X(0) @ qml.Y(1) + 0.3 * qml.Z(1), t),
    "steps": lambda t: qml.TrotterProduct(
        qml.dot([0.4, -0.3], [qml.X(0) @ qml.X(1), qml.Z(1)]), t, n=2, order=2
    ),
    "excitation": lambda t: qml.DoubleExcitationPlus(t, wires=[0, 1, 2, 3]),
}


NATIVE: dict[str, qml.operation.Operator] = {
    "many controls": qml.MultiControlledX(wires=[0, 1, 2, 3], control_values=[1, 0, 1]),
    "swap": qml.CSWAP(wires=[2, 0, 1]),
    "sign": qml.CCZ(wires=[3, 1, 0]),
    "hadamard": qml.CH(wires=[1, 0]),
    "phases": qml.ctrl(qml.S(0), control=[1, 2]),
    "two targets": qml.ctrl(qml.IsingXX(0.4, wires=[0, 1]), control=[2, 3], control_values=[0, 1]),
    "three controls": qml.ctrl(qml.Rot(0.4, 0.3, 0.2, wires=0), control=[1, 2, 3]),
    "permutation": qml.QubitUnitary(np.eye(8)[[3, 1, 0, 2, 5, 4, 7, 6]], wires=[3, 0, 2]),
}


@pytest.mark.parametrize("name", NATIVE)
def test_controlled_gates_and_permutations_are_taken_as_they_are(name: str) -> None:
    script = qml.tape.QuantumScript(
        [*(qml.RY(0.3 + 0.4 * wire, wires=wire) for wire in range(WIRES)), NATIVE[name]], [qml.state()]
    )
    (tape,), _ = device().preprocess_transforms()((script,))
    assert tape.operations == script.operations
    np.testing.assert_allclose(*(each.execute(script) for each in (device(), reference())), atol=1e-12)


@pytest.mark.parametrize("name", DEGENERATE)
def test_gradients_where_a_matrix_is_degenerate(name: str) -> None:
    """PennyLane decomposes matrices by angles that have no derivative there, and drops rotations by 0."""

    def function(t: Any) -> Any:
        for wire in range(WIRES):
            qml.RY(0.3 + 0.4 * wire, wires=wire)
            qml.RZ(0.2, wires=wire)
        DEGENERATE[name](t)
        for wire in range(WIRES):
            qml.RX(0.5, wires=wire)
        return qml.expval(qml.Z(0)), qml.expval(qml.Z(1)), qml.probs(wires=range(WIRES))

    for angle in (0.0, np.pi, 0.7):
        _, (slope,) = same(function, angle)
        assert abs(slope) > 1e-5
    if name not in ("evolution", "steps", "excitation"):
        same(function, [0.0, 0.65, 1.3])
