"""Code that reads circuits from tables has the numbers of circuits' own code, which takes over."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ketscale.engines import specialised
from ketscale.engines.circuits.ansaetze import strongly_entangling_ansatz
from ketscale.engines.circuits.circuit import GATES, Angles, Circuit, Column, Gate, pauli_words
from ketscale.engines.circuits.fused import Fused, listing, sweeps
from ketscale.engines.compiled import background
from ketscale.jobs import first_step, session
from tests.unit.engines.circuits.test_fused import angles_of


@pytest.fixture(autouse=True)
def mode(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that a test chooses is left to the next one, and no circuit is known."""
    monkeypatch.setattr(specialised, "_chosen", ["never"])
    sweeps.kernel.cache_clear()
    yield
    sweeps.kernel.cache_clear()


def drawn(rng: random.Random, qubits: int, gates: int) -> Circuit:
    """Gates of all kinds, their angles inputs, weights and constants; columns are used again, and some not at all."""
    names = [name for name, kind in GATES.items() if kind.wires <= qubits]

    def angle() -> Column:
        kind = rng.choice(["input", "weight", "constant"])
        return (
            Column("constant", 0, rng.uniform(-3, 3))
            if kind == "constant"
            else Column(kind, rng.randrange(5))
        )

    def gate(name: str) -> Gate:
        kind, controls = GATES[name], rng.choice([0, 0, 1, 3])
        wires = tuple(rng.sample(range(qubits), min(qubits, kind.wires + controls)))
        if rng.random() < 0.1:
            return Gate(
                "Permutation", wires, order=tuple(rng.sample(range(2 ** len(wires)), 2 ** len(wires)))
            )
        written = f"C({name})" if len(wires) > kind.wires else name
        return Gate(written, wires, tuple(angle() for _ in range(kind.angles)))

    return Circuit(qubits).then(*map(gate, rng.choices(names, k=gates)))


def found(
    circuit: Circuit, words: tuple[str, ...] | None, batch: int, dtype: torch.dtype, initial: int, seed: int
) -> list[torch.Tensor]:
    """Values with and without gradients, and the gradients by everything. initial: dimensions of the initial state."""
    sweeps.kernel.cache_clear()
    generator = torch.Generator().manual_seed(seed)
    angles = Angles(*(
        torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_()
        for shape in ((batch, circuit.inputs + 1), (circuit.weights + 1,))
    ))  # fmt: skip
    leaves, state = list(angles), None
    if initial:
        shape = (batch, 2**circuit.qubits)[2 - initial :]
        state = torch.randn(*shape, dtype=dtype.to_complex(), generator=generator).requires_grad_()
        leaves.append(state)

    def run() -> torch.Tensor:
        fused = Fused("sweep")
        if words is None:
            return fused.state(circuit, angles, state)
        return fused.expval(circuit, angles, words, state)

    values = run()
    if specialised.specialisation() == "never":
        with torch.no_grad():
            torch.testing.assert_close(run(), values.detach(), rtol=0, atol=0)
    cotangent = torch.randn(*values.shape, dtype=values.dtype, generator=generator)
    return [values.detach(), *torch.autograd.grad(values, leaves, cotangent, materialize_grads=True)]


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_it_gives_the_numbers_of_a_circuits_own_code(
    dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both codes agree on states that are one block, and on states in several."""
    rng = random.Random(str(dtype))
    for case, qubits in enumerate((1, 2, 4, 5, 6) if dtype == torch.float64 else (3, 5)):
        circuit, batch = drawn(rng, qubits, 12 * (case > 0)), rng.choice([1, 2, 3, 7, 17, 33])
        circuit = circuit.qft(*range(qubits)).rx(0, "x0")
        words = None if case % 2 else tuple("".join(rng.choices("IXYZ", k=qubits)) for _ in range(5))
        results = []
        for when, whole, part in (("always", 0, 0), ("never", 11, 8), ("never", 1, 2)):
            specialised.specialise(when)
            monkeypatch.setattr(listing, "WHOLE", whole)
            monkeypatch.setattr(listing, "PART", part)
            results.append(found(circuit, words, batch, dtype, case % 3, case))
        for read in results[1:]:
            for one, other in zip(read, results[0], strict=True):
                # A sum over the batch may be smaller than its terms, which are about 1.
                largest = max([1.0, *other.abs().flatten().tolist()])
                torch.testing.assert_close(one, other, rtol=0, atol=tolerance * largest)


def test_groups_and_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "WORK_PER_THREAD", 1)
    circuit, words = strongly_entangling_ansatz(4, 2), pauli_words(4)
    generator, before, results = torch.Generator().manual_seed(0), torch.get_num_threads(), []
    inputs = torch.randn(3, 40, circuit.inputs, generator=generator).requires_grad_()
    weights = torch.randn(3, circuit.weights, generator=generator).requires_grad_()
    call = torch.func.vmap(lambda i, w: Fused().expval(circuit, Angles(i, w), words))
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            values = call(inputs, weights)
            results.append([values, *torch.autograd.grad((values**3).sum(), [inputs, weights])])
    finally:
        torch.set_num_threads(before)
    alone = torch.stack(
        [Fused().expval(circuit, Angles(i, w), words) for i, w in zip(inputs, weights, strict=True)]
    )
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True)) and torch.equal(alone, values)


def test_the_own_code_of_a_circuit_that_is_called_again_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KETSCALE_CACHE", str(tmp_path))
    monkeypatch.setattr(background, "later", lambda what, do, done, dropped: (do(), done()))
    specialised.specialise("again")
    circuit, words = strongly_entangling_ansatz(3, 1), pauli_words(3)
    angles = angles_of(circuit, 4)
    sweep = sweeps.kernel(
        sweeps.Request(circuit, words, torch.float64, 4, True, ("input", "weight"), False, None, 1)
    )
    values = []
    for _ in range(2):
        assert sweep.own is None
        values.append(Fused().expval(circuit, angles, words))
    assert sweep.own is not None
    values.append(Fused().expval(circuit, angles, words))
    # A gradient is that of the code that gave the value.
    for value in values:
        torch.testing.assert_close(value, values[0], rtol=0, atol=1e-13)
        torch.autograd.grad(value.sum(), list(angles))


def test_deterministic_algorithms_have_own_code_from_the_first_call_on() -> None:
    specialised.specialise("again")
    torch.use_deterministic_algorithms(True)
    try:
        assert specialised.specialisation() == "always"
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("begin", [session.train, first_step.take])
def test_training_has_own_code_from_the_first_step_on_and_keeps_it(begin: Callable[..., Any]) -> None:
    class Asked(Exception):
        pass

    class Settings:
        def __getattr__(self, name: str) -> None:
            raise Asked(specialised.specialisation(), specialised.must_keep())

    specialised.specialise("again")
    with pytest.raises(Asked) as asked:
        begin(*[Settings()] * (5 if begin is session.train else 2))
    assert asked.value.args == ("always", True)
    assert (specialised.specialisation(), specialised.must_keep()) == ("again", False)
