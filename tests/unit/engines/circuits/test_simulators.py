"""One contract of the simulators: each gives the values, states and gradients of dense matrices, or refuses."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
import torch
from msgspec.structs import replace
from scipy.stats import unitary_group

from ketscale.config.circuits import CircuitSimulator
from ketscale.engines.circuits.ansaetze import qlcu_ansatz, vqc_ansatz
from ketscale.engines.circuits.circuit import GATES, Angles, Circuit, Column, Gate, given, pauli_words
from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.registry import SIMULATORS
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.circuits.superposition import Superposition, superposed
from ketscale.engines.circuits.wrapper import Looped
from ketscale.errors import UserError
from ketscale.simulators.factory import build_simulator
from ketscale.simulators.placement import Placed
from ketscale.simulators.spanned import Spanned
from ketscale.spans import Recorder, recording
from tests.unit.engines.circuits.dense import final_states, means, mixed

CPU = torch.device("cpu")
# What needs a GPU, and what takes seconds to compile each circuit: `test_jitted` has that.
ELSEWHERE = ("lightning.gpu", "default.qubit-jit")
SETTINGS = {
    **{name: CircuitSimulator.of_name(name) for name in SIMULATORS if name not in ELSEWHERE},
}
ONCE = [name for name in SETTINGS if SETTINGS[name].gradient != "backprop"]
LIMITED = [name for name in ONCE if SETTINGS[name].device != "fused"]
CIRCUIT = vqc_ansatz(2, 1)


@cache
def simulator(name: str) -> Simulator:
    return build_simulator(name, SETTINGS.get(name) or CircuitSimulator.of_name(name), CPU)


def random_circuit(qubits: int, seed: int) -> Circuit:
    """Every gate that fits and two given unitaries, on random wires, over few columns that several gates share."""
    rng = random.Random(seed)
    names = [name for name, kind in GATES.items() if kind.wires <= qubits]
    rng.shuffle(names)
    columns = [Column("input", i) for i in range(3)] + [Column("weight", i) for i in range(4)]
    columns += [Column("constant", value=0.7), Column("constant", value=-2.1)]
    gates = [
        Gate(
            name,
            tuple(rng.sample(range(qubits), GATES[name].wires)),
            tuple(rng.choice(columns) for _ in range(GATES[name].angles)),
        )
        for name in ["Hadamard", *names]
    ]
    # PennyLane's Rot takes tensors alone or numbers alone.
    gates.append(Gate("Rot", (0,), tuple(rng.sample([columns[0], columns[3], columns[7]], 3))))
    for wires in range(1, min(qubits, 2) + 1):
        matrix = unitary_group.rvs(2**wires, random_state=seed)
        gates.insert(rng.randrange(len(gates)), given(matrix, *rng.sample(range(qubits), wires)))
    return Circuit(qubits, tuple(gates))


def random_words(qubits: int, seed: int) -> tuple[str, ...]:
    """Three random Pauli words, the identity, and one word a second time."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("IXYZ", k=qubits)) for _ in range(3)]
    return (*words, "I" * qubits, words[0])


def random_angles(circuit: Circuit, batch: int, dtype: torch.dtype = torch.float64) -> Angles:
    generator = torch.Generator().manual_seed(7)
    inputs, weights = (
        torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype).requires_grad_()
        for shape in ((batch, circuit.inputs), (circuit.weights,))
    )
    return Angles(inputs, weights)


def random_states(*shape: int, dtype: torch.dtype = torch.complex128) -> torch.Tensor:
    states = torch.randn(*shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(11))
    return (states / states.norm(dim=-1, keepdim=True)).to(dtype)


def slopes(values: torch.Tensor, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """The values, and the gradients of a scalar that is not linear in them."""
    scale = torch.arange(1, values.shape[1] + 1, dtype=values.dtype)
    scalar = (torch.exp(values) * scale).sum() + values.prod(dim=1).sum()
    gradients: list[Any] = [None] * len(leaves)
    if scalar.requires_grad:
        gradients = list(torch.autograd.grad(scalar, leaves, allow_unused=True))
    return [values.detach(), *(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients, strict=True))]  # fmt: skip


def takes_states(name: str) -> bool:
    """Whether a simulator takes initial states; it refuses them otherwise."""
    return name != "qiskit"


# A circuit, the samples, and the shape of the states that these start from.
CASES: dict[str, tuple[Circuit, int, tuple[int, ...]]] = {
    "1": (random_circuit(1, 21), 1, ()),
    "2, one state": (random_circuit(2, 22), 3, (4,)),
    "4, states": (random_circuit(4, 24), 2, (2, 16)),
    "no inputs": (Circuit(2).ry(1, "w0").cnot(1, 0), 3, ()),
    "no angles": (Circuit(2).x(1), 2, ()),
    "no samples": (vqc_ansatz(2, 1), 0, ()),
}


@pytest.mark.parametrize(
    ("name", "case"),
    [
        *product(SETTINGS, CASES),
        *(("default.qubit-jit", case) for case in ("2, one state", "no inputs", "no samples")),
    ],
)
def test_every_simulator_gives_the_same_values_and_gradients(name: str, case: str) -> None:
    circuit, batch, shape = CASES[case]
    words, angles = random_words(circuit.qubits, 20 + circuit.qubits), random_angles(circuit, batch)
    initial = (
        random_states(*shape).requires_grad_(name not in LIMITED) if shape and takes_states(name) else None
    )
    leaves = [x for x in (*angles, initial) if x is not None and x.requires_grad]
    values = simulator(name).expval(circuit, angles, words, initial)
    states = final_states(circuit, *angles, initial)
    torch.testing.assert_close(
        slopes(values, leaves), slopes(means(states, words), leaves), atol=1e-9, rtol=1e-9
    )
    fixed = Angles(*(angle.detach() for angle in angles)), None if initial is None else initial.detach()
    torch.testing.assert_close(simulator(name).state(circuit, *fixed), states.detach(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", SETTINGS)
def test_samples_that_do_not_count_have_zero_gradients(name: str) -> None:
    """As on a rank without samples, which evaluates one and multiplies its sums by 0; words may cancel out, too.

    What counts little, as a sample that is all but learned, counts; but PennyLane shifts nothing for less than 1e-8.
    """
    least = 1e-7 if name == "default.qubit-loop-shift" else 1e-9
    circuit, starts = vqc_ansatz(2, 1), random_states(3, 4) if takes_states(name) else None
    inputs, weights = random_angles(circuit, 3)
    values = simulator(name).expval(circuit, Angles(inputs, weights), ("ZI", "IX", "ZI"), starts)
    count = torch.tensor([[0.0, 0, 0], [least, 2 * least, 3 * least], [1, 0, -1]], dtype=torch.float64)
    gradients = torch.autograd.grad((values * count).sum(), (inputs, weights))
    exact = means(final_states(circuit, inputs, weights, starts), ("ZI", "IX"))[1]
    expected = torch.autograd.grad(
        (exact * count.new_tensor([4 * least, 2 * least])).sum(), (inputs, weights)
    )
    torch.testing.assert_close(gradients, expected, rtol=1e-9, atol=1e-20)


@pytest.mark.parametrize("name", [*SETTINGS, "default.qubit-jit"])
def test_the_angles_precision_is_kept_and_gradients_are_those_that_are_wanted(name: str) -> None:
    circuit, words = random_circuit(2, 3), random_words(2, 3)
    inputs, weights = random_angles(circuit, 2, torch.float32)
    angles = Angles(inputs.detach(), weights)
    initial = random_states(4, dtype=torch.complex64) if takes_states(name) else None
    values = slopes(simulator(name).expval(circuit, angles, words, initial), [weights])
    assert {tensor.dtype for tensor in values} == {torch.float32}
    fixed = Angles(inputs.detach(), weights.detach())
    assert simulator(name).state(circuit, fixed, initial).dtype == torch.complex64
    exact = weights.detach().double().requires_grad_()
    start = None if initial is None else initial.to(torch.complex128)
    states = final_states(circuit, angles.inputs.double(), exact, start)
    torch.testing.assert_close(
        values, slopes(means(states, words), [exact]), atol=1e-4, rtol=1e-4, check_dtype=False
    )
    assert torch.get_default_dtype() == torch.float32


COPIED: dict[str, Callable[[], Simulator]] = {
    **{name: partial(simulator, name) for name in SETTINGS},
    "default.qubit-jit": partial(simulator, "default.qubit-jit"),
    "wrapped": lambda: Placed(Spanned(Looped(Fused())), CPU),
}


@pytest.mark.parametrize("make", COPIED.values(), ids=COPIED)
def test_a_copy_of_a_simulator_that_was_used_computes_the_same_to_the_last_bit(
    make: Callable[[], Simulator],
) -> None:
    result, angles = make(), random_angles(CIRCUIT, 5, torch.float32)

    def evaluated(each: Simulator) -> list[torch.Tensor]:
        return slopes(each.expval(CIRCUIT, angles, ("ZI", "XY")), [*angles])

    expected = evaluated(result)
    for other in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert other is not result and all(map(torch.equal, evaluated(other), expected))


# --- superpositions of a state with its mirror image; `test_kernels` has what `fused` makes of them ---


class Minimal:
    """A simulator with no more than the protocol asks for."""

    def __init__(self) -> None:
        self.state, self.expval = Fused().state, Fused().expval


SUPERPOSING: list[Simulator] = [
    simulator("default.qubit"), Fused(), Looped(Fused()), Placed(Fused(), CPU), Minimal(), Spanned(Minimal()),
    Looped(Minimal()),
]  # fmt: skip
# A cyclic shift of wires, as in the Hydra models; and one that leaves powers of i to apply.
SHIFTED = Circuit(
    4, (*qlcu_ansatz(4, 1).gates, *(g for w in range(3) for g in Circuit(4).swap(w, w + 1).gates))
)


@pytest.mark.parametrize("circuit", [SHIFTED, SHIFTED.s(0).ry(1, "w0")], ids=["shifted", "powers"])
@pytest.mark.parametrize("made", SUPERPOSING, ids=lambda made: type(made).__name__)
def test_every_simulator_measures_superpositions(made: Simulator, circuit: Circuit) -> None:
    words = pauli_words(4, "XYZ")
    for batch in (20, 0):
        mix = Superposition(random_states(2).requires_grad_(), random_states(16).requires_grad_())
        angles = random_angles(circuit, batch)
        leaves = [*angles, *mix]
        result = superposed(made, circuit, angles, words, mix)
        expected = means(mixed(final_states(circuit, *angles), *mix), words)
        torch.testing.assert_close(slopes(result, leaves), slopes(expected, leaves), atol=1e-9, rtol=1e-9)
    for other in (mix._replace(constant=mix[0]), mix._replace(coefficients=torch.zeros(2))):
        with pytest.raises(UserError, match="superposition's"):
            superposed(made, circuit, angles, words, other)


# --- what is refused, which would else be left out, or read from elsewhere ---

Asked = Callable[[Simulator, torch.Tensor, torch.Tensor], Any]
BEYOND: dict[str, tuple[list[str], Asked]] = {
    "the gradient of a state": (LIMITED, lambda s, x, w: s.state(CIRCUIT, Angles(x, w))),
    "the gradient by a state": (
        LIMITED, lambda s, x, w: s.expval(CIRCUIT, Angles(x, w), ("ZZ",), random_states(4).requires_grad_())
    ),
    "a second derivative": (LIMITED, lambda s, x, w: torch.autograd.grad(
        s.expval(CIRCUIT, Angles(x, w), ("ZZ",)).sum() + w.pow(3).sum(), w, create_graph=True)),
    "several gradients at once": (ONCE, lambda s, x, w: torch.autograd.grad(
        s.expval(CIRCUIT, Angles(x, w), ("ZI", "IX"))[0], w, torch.eye(2).double(), is_grads_batched=True)),
    **{f"words {words}": ([*SETTINGS], lambda s, x, w, words=words: s.expval(CIRCUIT, Angles(x, w), words))
       for words in ((), ("Z",), ("ZZZ",), ("zz",))},
    **{f"states {tuple(state.shape)}": (
        [*SETTINGS], lambda s, x, w, state=state: s.state(CIRCUIT, Angles(x.detach(), w.detach()), state))
       for state in (random_states(2), random_states(2, 4), random_states(4, dtype=torch.complex64))},
    "inputs": ([*SETTINGS], lambda s, x, w: s.expval(CIRCUIT, Angles(x[:, :1], w), ("ZZ",))),
}  # fmt: skip


@pytest.mark.parametrize("asked", BEYOND)
def test_what_a_simulator_cannot_give_is_refused(asked: str) -> None:
    names, ask = BEYOND[asked]
    for name in names:
        with pytest.raises(UserError):
            ask(simulator(name), *random_angles(CIRCUIT, 3))


def test_settings_that_do_not_go_together_are_refused() -> None:
    qiskit, cuda = SETTINGS["qiskit"], torch.device("cuda")
    wrong = (replace(qiskit, gradient="adjoint"), CPU), (qiskit, cuda)
    for settings, device in wrong:
        with pytest.raises(UserError):
            build_simulator("mine", settings, device)
    transferred = build_simulator("qiskit", replace(qiskit, placement="cpu"), cuda)
    assert isinstance(transferred, Placed) and transferred.device == CPU


def test_a_placed_simulator_gives_the_same_and_times_its_transfers_both_ways() -> None:
    circuit, words = random_circuit(2, 4), random_words(2, 4)
    angles, initial = random_angles(circuit, 2), random_states(4).requires_grad_()
    transferred, leaves = Placed(simulator("default.qubit"), CPU), [*angles, initial]
    torch.testing.assert_close(
        slopes(transferred.expval(circuit, angles, words, initial), leaves),
        slopes(means(final_states(circuit, *leaves), words), leaves),
    )
    curvatures = (
        torch.autograd.functional.hessian(
            lambda w, each=each: each.expval(circuit, Angles(angles.inputs, w), words).exp().sum(),
            angles.weights,
        )
        for each in (transferred, simulator("default.qubit"))
    )
    torch.testing.assert_close(*curvatures)
    recorder = Recorder(CPU)
    with patch.object(recorder, "enter", wraps=recorder.enter) as enter, recording(recorder):
        transferred.state(circuit, angles).abs().sum().backward()
        transferred.state(circuit, Angles(angles.inputs.detach(), angles.weights)).abs().sum().backward()
    # Two angles and one result go there and back; inputs without a gradient do not come back.
    assert [call.args[0] for call in enter.mock_calls].count("transfer") == 6 + 5
