"""`ketscale.jax` under JAX's transformations agrees with dense matrices under the same ones, in values and derivatives."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pennylane as qml
import pytest
import torch

import ketscale.jax as on_jax
from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.transforms import inputs_only
from ketscale.engines.noise import density
from ketscale.errors import UserError
from ketscale.interop import jax_kernels, jax_primitive
from tests.unit.engines.circuits.dense import dense_word
from tests.unit.engines.noise.reference import random_circuit, random_words

pytestmark = pytest.mark.usefixtures("exact_jax")

QUBITS, INPUTS, WEIGHTS = 2, 2, 4
CIRCUIT = (
    Circuit(QUBITS)
    .ry(0, "x0")
    .rot(1, "w0", "x1", "w1")
    .cnot(0, 1)
    .crx(1, 0, "w2")
    .rz(0, "w3")
    .phase(1, "x0")
    .xx(0, 1, "w0")
)
OBSERVABLES: list[Any] = ["ZI", {"XY": 0.5, "IZ": -1.0}]


def in_pennylane(x: Any, w: Any) -> Any:
    """The same circuit as a quantum function."""
    qml.RY(x[0], 0)
    qml.Rot(w[0], x[1], w[1], 1)
    qml.CNOT([0, 1])
    qml.CRX(w[2], [1, 0])
    qml.RZ(w[3], 0)
    qml.PhaseShift(x[0], 1)
    qml.IsingXX(w[0], [0, 1])
    total = qml.Hamiltonian([0.5, -1.0], [qml.X(0) @ qml.Y(1), qml.Z(1)])
    return qml.expval(qml.Z(0)), qml.expval(total)


def qnode_on(device: str, **settings: Any) -> Any:
    return qml.QNode(in_pennylane, qml.device(device, wires=QUBITS), interface="jax", **settings)


def stacked(qnode: Any) -> Callable[..., Any]:
    return lambda x, w: jnp.stack(qnode(x, w))


def rotate(state: Any, generator: np.ndarray, angle: Any) -> Any:
    """exp(-i angle G / 2) on a state, for G^3 = G."""
    rotated = generator @ state
    return state + (jnp.cos(angle / 2) - 1) * (generator @ rotated) - 1j * jnp.sin(angle / 2) * rotated


def reference(x: Any, w: Any) -> Any:
    """The circuit's values by dense matrices in JAX, but for phases of the whole state; of a batch as PennyLane has it."""
    if x.ndim == 2:
        return jax.vmap(reference, (1, None), 1)(x, w)
    controlled = np.kron([[0, 1], [1, 0]], [[0, 0], [0, 1]])
    state = jnp.eye(4)[0] + 0j
    for word, angle in (("YI", x[0]), ("IZ", w[0]), ("IY", x[1]), ("IZ", w[1])):
        state = rotate(state, dense_word(word), angle)
    state = rotate(state[jnp.array([0, 1, 3, 2])], controlled, w[2])
    for word, angle in (("ZI", w[3]), ("IZ", x[0]), ("XX", w[0])):
        state = rotate(state, dense_word(word), angle)
    observables = jnp.stack([dense_word("ZI"), 0.5 * dense_word("XY") - dense_word("IZ")])
    return jnp.einsum("i,oij,j->o", state.conj(), observables, state).real


def draws(*shape: int, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng(seed + len(shape)).normal(size=shape))


# Each makes of a function of (inputs, weights) with results of any shape one with an argument more or less.
def mapped_inputs(f: Any) -> Any:
    return lambda x, w: jax.vmap(f, (0, None))(jnp.stack([x, x + 0.3, 2 * x]), w)


def mapped_weights(f: Any) -> Any:
    return lambda x, w: jax.vmap(f, (None, 0), out_axes=-1)(x, jnp.stack([w, w - 0.4]))


def forward(f: Any) -> Any:
    return lambda x, w: jax.jvp(f, (x, w), (jnp.cos(x), 0.5 * w + 1))


def reverse(f: Any) -> Any:
    def pulled(x: Any, w: Any) -> Any:
        values, back = jax.vjp(f, x, w)
        return values, back(
            jax.tree.map(lambda v: jnp.sin(jnp.arange(v.size) + 1.0).reshape(v.shape).astype(v.dtype), values)
        )

    return pulled


def looped(f: Any) -> Any:
    def summed(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda s, shift: (s + 0.1, f(x + s, w * shift)), 0.0, jnp.arange(1.0, 3.0))

    return summed


def linear(f: Any) -> Any:
    def moved(x: Any, w: Any) -> Any:
        values, along = jax.linearize(f, x, w)
        return values, along(jnp.cos(x), 0.5 * w + 1)

    return moved


CIRCUIT_OF_STATES = Circuit(2).ry(0, "x0").rz(1, "w0").xx(0, 1, "w1")
JACOBIAN = functools.partial(jax.jacfwd, argnums=(0, 1))
TRANSFORMS = (
    mapped_inputs, mapped_weights, forward, reverse, looped, jax.jit, jax.checkpoint, JACOBIAN, linear,
)  # fmt: skip
THIRD = (
    lambda f: jax.jacfwd(jax.hessian(f, (0, 1)), (0, 1)),
    lambda f: jax.jacrev(jax.jacrev(jax.grad(lambda *p: f(*p).sum(), 1), 0), 0),
)
# Each of them inside and outside of another one, and second and third derivatives.
PAIRS = [
    *zip(TRANSFORMS, TRANSFORMS[1:] + TRANSFORMS[:1], strict=True),
    *((forward, forward), (reverse, reverse), (jax.jit, THIRD[0]), (jax.jit, THIRD[1])),
]


def same(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for mine, reference in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(mine, reference, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("inner", "outer"), PAIRS)
def test_transformations_of_transformations(inner: Any, outer: Any) -> None:
    f = on_jax.expval(CIRCUIT, OBSERVABLES)
    x, w = draws(INPUTS), draws(WEIGHTS)
    same(jax.jit(outer(inner(f)))(x, w), jax.jit(outer(inner(reference)))(x, w))


@pytest.mark.parametrize(
    "transform",
    [
        *THIRD,
        lambda f: forward(forward(mapped_weights(f))),
        lambda f: mapped_inputs(reverse(forward(reverse(f)))),
    ],
)
def test_shifts_and_operators_give_the_same(transform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a block that is shifted, and for one that is not."""
    circuit = Circuit(2).ry(0, "x0").rot(1, "w0", "x1", "w1").cnot(0, 1).crx(1, 0, "w2").xx(0, 1, "x2")
    f, x, w = transform(on_jax.expval(circuit, OBSERVABLES)), draws(3), draws(3)
    assert jax_primitive.shifts_of(inputs_only(circuit), ("ZI",), "input", range(3)) is not None
    result = jax.jit(f)(x, w)
    monkeypatch.setattr(jax_primitive, "shifts_of", lambda *request: None)
    jax.clear_caches()
    same(result, jax.jit(lambda *point: f(*point))(x, w), 1e-11)


def test_inputs_that_turn_one_rotation_are_shifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient by weights of second derivatives by inputs is one of kernels alone."""
    monkeypatch.setattr(jax_primitive, "plain", lambda *point, **request: pytest.fail("JAX's operators"))
    circuit = Circuit(2).ry(0, "x0").ry(1, "x1").cnot(0, 1).ry(1, "w0").rx(1, "w0")
    f, x, w = on_jax.expval(circuit), draws(3, 2), draws(1)

    def exact(x: Any, w: Any) -> Any:
        (c, s), (a, b) = (jnp.cos(w[0]), jnp.sin(w[0])), jnp.cos(x)
        return jnp.stack([a, c * (c * a * b - s * jnp.sin(x[1]))])

    def loss(f: Any) -> Any:
        return jax.grad(lambda w: (jax.vmap(jax.hessian(f), (0, None))(x, w) ** 3).sum())

    same(jax.jit(loss(f))(w), loss(exact)(w), 1e-11)


def test_mapped_hessians_by_operators_are_differentiated_by_weights() -> None:
    circuit = Circuit(2).ry(0, "x0").rx(0, "x0").ry(1, "w0").cnot(0, 1).ry(1, "w0")
    f, x, w = on_jax.expval(circuit), draws(3, 1), draws(1)

    def loss(w: Any, x: Any) -> Any:
        return (jax.vmap(jax.hessian(lambda each: f(each, w)))(x) ** 2).sum()

    single = jax.jit(jax.grad(lambda w, x: (jax.hessian(lambda each: f(each, w))(x) ** 2).sum()))
    same(jax.jit(jax.grad(loss))(w, x), sum(single(w, each) for each in x), 1e-12)


@pytest.mark.parametrize("given", ["zero", "one", "each"])
def test_states_and_initial_states_are_differentiated_twice(given: str) -> None:
    """Against products of matrices in JAX; for samples with weights of their own too."""
    x, w = draws(3, 1), draws(3, 2)
    initial = draws(*([3] if given == "each" else []), 4) + 1j * draws(4, seed=5)
    start, f = (jnp.eye(4)[0] + 0j if given == "zero" else initial), on_jax.state(CIRCUIT_OF_STATES)

    def plain(x: Any, w: Any, initial: Any) -> Any:
        def one(x: Any, w: Any, state: Any) -> Any:
            for word, angle in (("YI", x[0]), ("IZ", w[0]), ("XX", w[1])):
                state = rotate(state, dense_word(word), angle)
            return state

        return jax.vmap(one)(x, jnp.broadcast_to(w, (3, 2)), jnp.broadcast_to(initial, (3, 4)))

    def mine(x: Any, w: Any, initial: Any) -> Any:
        return f(x, w, **({} if given == "zero" else {"initial": initial}))

    factors = draws(3, 4, seed=1) + 1j * draws(3, 4, seed=2)

    def asked(of: Any, w: Any) -> Any:
        def loss(x: Any, w: Any, real: Any, imag: Any) -> Any:
            return jnp.abs((of(x, w, real + 1j * imag) * factors).sum(1)).sum()

        point = x, w, start.real, start.imag
        gradient = jax.grad(loss, (0, 1) if given == "zero" else (0, 1, 2, 3))
        scales = (1.0, 1.0, *[0.0 if given == "zero" else 1.0] * 2)
        along = tuple(scale * jnp.cos(7 * each) for scale, each in zip(scales, point, strict=True))
        tangents = jax.jvp(gradient, point, along)
        repeat = jax.grad(lambda *p: sum(map(jnp.vdot, gradient(*p), along)), (0, 1))
        return of(x, w, start), tangents, repeat(*point)

    for weights in (w, w[0]):
        same(*(jax.jit(asked, static_argnums=0)(of, weights) for of in (mine, plain)), 1e-11)


def test_single_precision_and_weak_types() -> None:
    f = on_jax.expval(CIRCUIT)
    x, w = draws(5, INPUTS), draws(WEIGHTS)
    exact, single = f(x, w), f(x.astype(jnp.float32), w.astype(jnp.float32))
    assert single.dtype == jnp.float32 and exact.dtype == jnp.float64
    # Its type is weak, which is no reason for single precision.
    weak = jnp.arange(INPUTS) * 0.1
    assert f(weak, w).dtype == f(weak, jnp.full(WEIGHTS, 0.1)).dtype == jnp.float64
    assert f(weak, w.astype(jnp.float32)).dtype == jnp.float32
    qnode = qml.QNode(
        lambda angle: (qml.RX(angle, 0), qml.expval(qml.Z(0)))[1], qml.device("ketscale.fused", wires=1)
    )
    for result in (qnode(jnp.array(0.4)), jax.jit(qnode)(0.4)):
        assert result.dtype == jnp.float64 and abs(result - np.cos(0.4)) < 1e-14
    np.testing.assert_allclose(single, exact, rtol=0, atol=1e-6)
    gradient = jax.grad(lambda w: f(x.astype(jnp.float32), w).sum())(w.astype(jnp.float32))
    np.testing.assert_allclose(gradient, jax.grad(lambda w: f(x, w).sum())(w), rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_noisy_circuits_have_the_values_and_gradients_that_torch_has(seed: int) -> None:
    """They agree for batches, for single samples, and mapped over inputs and weights."""
    generator = np.random.default_rng(seed)
    circuit = random_circuit(generator, 1 + seed % 3, 15).channel("AmplitudeDamping", 0, "x0").ry(0, "w0")
    words = random_words(generator, circuit.qubits)
    x, w = (0.3 * generator.random(shape) for shape in ((5, circuit.inputs), (2, circuit.weights)))
    factors = generator.random((2, 5, len(words)))
    f = on_jax.expval(circuit, words)

    def loss(x: Any, w: Any) -> Any:
        values = jax.vmap(f, (None, 0))(x, w)
        return (values * factors).sum() + jax.vmap(f, (0, None))(x, w[0]).sum() + f(x[0], w[1]).sum(), values

    (_, values), slopes = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(x, w)
    point = [torch.tensor(each, requires_grad=True) for each in (x, w)]
    groups = torch.stack([density.expval(circuit, Angles(point[0], row), words) for row in point[1]])
    total = (groups * torch.tensor(factors)).sum() + groups[0].sum() + groups[1, 0].sum()
    same([values, *slopes], [groups.detach().numpy(), *map(np.asarray, torch.autograd.grad(total, point))])


def test_second_derivatives_of_noisy_circuits_are_those_of_torch() -> None:
    circuit = (
        Circuit(2).ry(0, "x0").channel("AmplitudeDamping", 0, "w0").cnot(0, 1).rx(1, "x0")
        .channel("DepolarizingChannel", (0, 1), "w1").channel("GeneralizedAmplitudeDamping", 1, "w0", "x1")
    )  # fmt: skip
    f, words = on_jax.expval(circuit, ["ZZ", "XI"]), ("ZZ", "XI")
    x, w = np.array([0.4, 0.2]), np.array([0.1, 0.3])
    found = jax.jit(jax.hessian(lambda x, w: f(x, w).sum(), (0, 1)))(x, w)
    expected = torch.autograd.functional.hessian(
        lambda x, w: density.expval(circuit, Angles(x[None], w), words).sum(),
        (torch.tensor(x), torch.tensor(w)),
    )
    same(found, jax.tree.map(np.asarray, expected))


def test_strengths_that_are_none_are_refused_in_words_inside_and_outside_of_jit() -> None:
    f = on_jax.expval(Circuit(1).channel("BitFlip", 0, "x0").channel("PauliChannel", 0, "w0", 0.4, "w1"))
    w = jnp.array([0.1, 0.2])
    for given, wanted in (
        (1.5, "column 0"),
        (-0.1, "column 0"),
        (jnp.nan, "column 0"),
        (0.1, "column 1 and column 2"),
    ):
        for call in (f, jax.jit(f), jax.grad(lambda x, w: f(x, w).sum()), jax.vmap(f, (0, None))):
            with pytest.raises(jax.errors.JaxRuntimeError, match=f"{wanted}: the strength of a channel"):
                jax.block_until_ready(call(jnp.full((1, 1), given), w + 0.3 * (given == 0.1)))
    with pytest.raises(UserError, match="no state vector"):
        on_jax.state(Circuit(1).channel("BitFlip", 0, 0.1))
    with pytest.raises(UserError, match="begins with"):
        f(jnp.full((1, 1), 0.1), w, initial=jnp.array([1, 0]))


def test_arguments_that_do_not_fit_are_refused_in_words_and_none_are_needed() -> None:
    same(on_jax.expval(Circuit(1).h(0), ["X"])(), jnp.ones(1))
    for x in (np.zeros(3), np.zeros(2, complex)):
        with pytest.raises(UserError):
            on_jax.expval(CIRCUIT)(x, np.zeros(4))


def test_threads_share_the_kernels() -> None:
    """Two threads call one executable, whose tiles torch's threads share: the results are those of one call."""
    qubits = 10
    circuit = Circuit(qubits)
    for wire in range(qubits):
        circuit = circuit.ry(wire, f"x{wire}").rx(wire, f"w{wire}").cnot(wire, (wire + 1) % qubits)
    f = on_jax.expval(circuit)
    x, w = draws(64, qubits), draws(qubits)
    called = jax.jit(jax.value_and_grad(lambda w: (f(x, w) ** 2).sum()))
    expected = jax.tree.map(np.asarray, called(w))
    result: list[Any] = []

    def call() -> None:
        result.extend(jax.tree.map(np.asarray, called(w)) for _ in range(10))

    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(result) == 20
    for values in result:
        assert all(map(np.array_equal, jax.tree.leaves(values), jax.tree.leaves(expected)))


def test_a_circuit_lives_as_long_as_the_executables_that_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[Any] = []
    monkeypatch.setattr(jax_kernels, "compiled", lambda *a, **k: values.append(plain(*a, **k)) or values[-1])
    f = on_jax.expval(Circuit(1).ry(0, "x0").rx(0, 0.123))
    executable = jax.jit(lambda x: f(x)).lower(draws(1)).compile()
    alive = weakref.ref(values[-1].table)
    expected = np.asarray(executable(draws(1)))
    values.clear()
    jax.clear_caches()
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(executable(draws(1)), expected)
    del executable
    jax.clear_caches()
    gc.collect()
    assert alive() is None


plain = jax_kernels.compiled.__wrapped__


NESTINGS: dict[str, Any] = {
    "gradient of a map": lambda f: jax.grad(lambda w: (jax.vmap(f, (0, None))(XS, w) ** 2).sum()),
    "map of gradients": lambda f: jax.vmap(jax.grad(lambda w: (f(XS[0], w) ** 2).sum())),
    "map of maps": lambda f: jax.vmap(lambda w: jax.vmap(f, (0, None))(XS, w)),
    "one batch of PennyLane's": lambda f: jax.jacobian(lambda w: f(XS.T, w)),
    "map of hessians": lambda f: jax.vmap(jax.hessian(lambda w: f(XS[0], w).sum())),
}
XS, WS = np.random.default_rng(3).normal(size=(3, INPUTS)), np.random.default_rng(4).normal(size=(2, WEIGHTS))


@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_qnode_is_mapped_and_differentiated(nesting: str) -> None:
    qnode = qnode_on("ketscale.fused", max_diff=1 + nesting.endswith("hessians"))
    transform = NESTINGS[nesting]
    w = jnp.asarray(WS if nesting.startswith("map") else WS[0])
    same(jax.jit(transform(stacked(qnode)))(w), jax.jit(transform(reference))(w))
