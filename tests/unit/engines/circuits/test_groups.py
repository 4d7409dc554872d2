"""Several sets of weights in one call, by torch.func.vmap, against one call for each."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from benchmarks import steps
from ketscale import spans
from ketscale.engines.circuits.ansaetze import qlcu_ansatz, strongly_entangling_ansatz, vqc_ansatz
from ketscale.engines.circuits.circuit import Angles, Circuit, pauli_words
from ketscale.engines.circuits.fused import Fused, cpu, gpu
from ketscale.engines.circuits.superposition import Superposition, superposed
from ketscale.errors import UserError
from ketscale.simulators.placement import Placed
from ketscale.simulators.spanned import Spanned
from tests.pairs import sampled

CPU = torch.device("cpu")
GROUPS = 3
Calls = Callable[..., torch.Tensor]


def some(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_()


def states(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    rows = some(*shape, dtype=dtype.to_complex()).detach()
    return (rows / rows.norm(dim=-1, keepdim=True)).requires_grad_()


def differentiated(values: torch.Tensor, leaves: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """The values, and the gradients of a scalar of them."""
    weights = some(*values.shape).detach().to(values.dtype)
    gradients = torch.autograd.grad(
        (values * weights).sum().real, leaves, allow_unused=True, materialize_grads=True
    )
    return [values.detach(), *gradients]


def compared(function: Calls, *leaves: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of the results of one call and of one call for each group; all leaves have a first dimension of groups."""
    alone = torch.stack([function(*tensors) for tensors in zip(*leaves, strict=True)])
    return list(
        zip(
            differentiated(vmap(function)(*leaves), leaves),
            differentiated(alone, leaves),
            strict=True,
        )
    )


def check(pairs: list[tuple[torch.Tensor, torch.Tensor]], dtype: torch.dtype, bits: bool) -> None:
    for found, expected in pairs:
        if bits:
            assert torch.equal(found, expected)
        else:
            tolerance = 1e-12 if dtype == torch.float64 else 1e-4
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


CIRCUITS = [
    *(vqc_ansatz(qubits, 2) for qubits in (1, 4, 12)),
    *(strongly_entangling_ansatz(qubits, 2) for qubits in (1, 5)),
]


@pytest.mark.parametrize(
    ("circuit", "dtype", "batch", "measured"),
    sampled(CIRCUITS, (torch.float64, torch.float32), (1, 2, 21), (True, False)),
    ids=lambda each: f"{each.qubits} qubits, {len(each.gates)} gates" if isinstance(each, Circuit) else None,
)
def test_a_group_has_the_bits_that_it_has_alone(
    circuit: Circuit, dtype: torch.dtype, batch: int, measured: bool
) -> None:
    words = pauli_words(circuit.qubits, "ZX")
    inputs = some(GROUPS, batch, circuit.inputs, dtype=dtype)
    weights = some(GROUPS, circuit.weights, dtype=dtype)

    def evaluated(i: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        angles = Angles(i, w)
        return Fused().expval(circuit, angles, words) if measured else Fused().state(circuit, angles)

    # Samples that are alone in their group share a tile.
    check(compared(evaluated, inputs, weights), dtype, bits=batch > 1)


@pytest.mark.parametrize("batch", [1, 5])
def test_initial_states_of_groups_and_of_samples(batch: int) -> None:
    circuit, words = strongly_entangling_ansatz(3, 2), pauli_words(3, "YZ")
    inputs, weights = some(GROUPS, batch, circuit.inputs), some(GROUPS, circuit.weights)
    for initial in (states(GROUPS, 8), states(GROUPS, batch, 8)):
        pairs = compared(
            lambda i, w, s: Fused().expval(circuit, Angles(i, w), words, s), inputs, weights, initial
        )
        check(pairs, torch.float64, bits=False)
    one = states(8)
    found = vmap(lambda i, w: Fused().expval(circuit, Angles(i, w), words, one))(inputs, weights)
    expected = [
        Fused().expval(circuit, Angles(*angles), words, one) for angles in zip(inputs, weights, strict=True)
    ]
    leaves = (inputs, weights, one)
    check(
        list(zip(differentiated(found, leaves), differentiated(torch.stack(expected), leaves), strict=True)),
        torch.float64,
        bits=False,
    )


def test_inputs_or_weights_may_be_shared() -> None:
    circuit, words = vqc_ansatz(4, 2), pauli_words(4)
    inputs, weights = some(GROUPS, 6, 4), some(GROUPS, 8)

    def function(i: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return Fused().expval(circuit, Angles(i, w), words)

    for dims, given in (((None, 0), (inputs[0], weights)), ((0, None), (inputs, weights[0]))):
        leaves = tuple(tensor.detach().requires_grad_() for tensor in given)
        all_ = [t.expand(GROUPS, *t.shape) if d is None else t for d, t in zip(dims, leaves, strict=True)]
        alone = torch.stack([function(*tensors) for tensors in zip(*all_, strict=True)])
        pairs = zip(
            differentiated(vmap(function, dims)(*leaves), leaves), differentiated(alone, leaves), strict=True
        )
        check(list(pairs), torch.float64, bits=False)


def test_more_columns_than_a_circuit_needs_have_no_gradient() -> None:
    circuit, words = vqc_ansatz(2, 1), pauli_words(2)
    inputs, weights = some(GROUPS, 6, 5), some(GROUPS, 7)
    pairs = compared(lambda i, w: Fused().expval(circuit, Angles(i, w), words), inputs, weights)
    check(pairs, torch.float64, bits=True)
    assert not pairs[1][0][..., 2:].any() and not pairs[2][0][:, 2:].any()


@pytest.mark.parametrize("route", ["auto", "sweep", "matrix"])
def test_a_group_takes_the_route_that_it_takes_alone(route: str) -> None:
    circuit, words = strongly_entangling_ansatz(2, 20), pauli_words(2)
    inputs, weights = some(GROUPS, 30, circuit.inputs), some(GROUPS, circuit.weights)
    for function in (
        lambda i, w: Fused(route).expval(circuit, Angles(i, w), words),
        lambda i, w: Fused(route).state(circuit, Angles(i, w)),
    ):
        check(compared(function, inputs, weights), torch.float64, bits=False)


def test_circuits_without_inputs_and_groups_without_samples() -> None:
    circuit, words = Circuit(2).ry(0, "w0").cnot(0, 1).ry(1, 0.3), pauli_words(2)
    inputs, weights = some(GROUPS, 4, 0), some(GROUPS, 1)
    for rows in (4, 0):
        pairs = compared(lambda i, w: Fused().expval(circuit, Angles(i, w), words), inputs[:, :rows], weights)
        check(pairs, torch.float64, bits=False)
        assert pairs[0][0].shape == (GROUPS, rows, 2)


@pytest.mark.parametrize("route", ["auto", "matrix"])
def test_superpositions_of_groups(route: str) -> None:
    circuit, words = qlcu_ansatz(3, 1), pauli_words(3, "XYZ")
    inputs = some(GROUPS, 20, circuit.inputs)
    coefficients, constant = states(GROUPS, 2), states(GROUPS, 8)
    simulator = Spanned(Fused(route))

    def function(i: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return superposed(simulator, circuit, Angles(i, i.new_empty(0)), words, Superposition(c, s))

    check(compared(function, inputs, coefficients, constant), torch.float64, bits=False)


def test_wrappers_let_groups_through_and_time_them() -> None:
    circuit, words = vqc_ansatz(3, 2), pauli_words(3)
    inputs, weights = some(GROUPS, 6, 3), some(GROUPS, 6)
    simulator = Placed(Spanned(Fused()), CPU)
    record = spans.Recorder(CPU)
    with spans.recording(record):
        found = differentiated(
            vmap(lambda i, w: simulator.expval(circuit, Angles(i, w), words))(inputs, weights),
            (inputs, weights),
        )
    expected = compared(lambda i, w: Fused().expval(circuit, Angles(i, w), words), inputs, weights)
    check([(a, b) for a, (_, b) in zip(found, expected, strict=True)], torch.float64, bits=True)
    names = [event.name for event in record.events]
    assert names.count("circuit.forward") == names.count("circuit.backward") == 1
    assert "transfer" in names


@pytest.mark.parametrize("shared", [False, True])
def test_a_gpu_takes_the_weights_of_groups_as_inputs(monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """By the operators that a GPU runs for large circuits, here on the CPU."""
    monkeypatch.setattr(gpu, "MOST_QUBITS", 0)
    circuit, words = strongly_entangling_ansatz(3, 2), pauli_words(3)
    leaves = (
        some(GROUPS, 5, 3),
        some(GROUPS, circuit.weights),
        states(*(GROUPS, 5, 8)[:: 2 if shared else 1]),
    )
    inputs, weights, initial = leaves
    found = gpu.evaluate(circuit, inputs, weights, words, initial)
    expected = cpu.evaluate(circuit, inputs, weights, words, initial)
    pairs = zip(differentiated(found, leaves), differentiated(expected, leaves), strict=True)
    check(list(pairs), torch.float64, bits=False)


def test_one_call_for_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    evaluate = cpu.evaluate
    monkeypatch.setattr(cpu, "evaluate", lambda *a, **k: calls.append(0) or evaluate(*a, **k))
    circuit, words = vqc_ansatz(3, 2), pauli_words(3)
    inputs, weights = some(2, GROUPS, 6, 3), some(GROUPS, 6)
    # Within another vmap, too.
    nested = vmap(lambda i: vmap(lambda x, w: Fused().expval(circuit, Angles(x, w), words))(i, weights))
    values = nested(inputs)
    values.sum().backward()
    assert len(calls) == 1 and values.shape == (2, GROUPS, 6, 3)


def test_a_group_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match=r"weights must be \(4,\), not \(3,\)"):
        vmap(lambda i, w: Fused().expval(vqc_ansatz(2, 2), Angles(i, w), ("ZI",)))(
            some(GROUPS, 6, 2), some(GROUPS, 3)
        )


@pytest.mark.parametrize("model", steps.MODELS)
def test_every_model_has_the_numbers_that_it_has_alone(model: str) -> None:
    """Dropout included, by stacking the parameters of its problem."""
    sentences = model in steps.ON_SENTENCES
    batch = steps.SENTENCES if sentences else 3
    arm = steps.arms(model)[0]
    first = steps.built(steps.ModelCase(model, 4 if sentences else 3, batch), arm, CPU)
    first.convert(CPU, torch.float64)
    problems, seeds = [first, copy.deepcopy(first)], (5, 6)
    with torch.no_grad():
        for parameter in problems[1].parameters():
            parameter.mul_(1.1)
    parameters, _ = stack_module_state(problems)
    samples = torch.arange(batch)

    def sums(parameters: dict[str, torch.Tensor], seed: torch.Tensor) -> torch.Tensor:
        with first.seeded(seed):
            return functional_call(first, parameters, (samples, 3))

    found = vmap(sums)(parameters, torch.tensor(seeds))
    found.sum().backward()
    for k, (problem, seed) in enumerate(zip(problems, seeds, strict=True)):
        problem.seed = seed
        alone = problem(samples, 3)
        torch.testing.assert_close(found[k], alone, rtol=1e-12, atol=1e-12)
        alone.sum().backward()
        for name, parameter in problem.named_parameters():
            own = parameters[name].grad
            assert (own is None) == (parameter.grad is None)
            if own is not None:
                torch.testing.assert_close(own[k], parameter.grad, rtol=1e-9, atol=1e-12)
