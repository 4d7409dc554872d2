"""`ketscale bench simulators`: value and gradient of small circuits, by every simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import ceiling, machine
from benchmarks.arithmetic import literal_flops
from benchmarks.factors import CircuitCase, Factors
from benchmarks.options import SECONDS, names, number, numbers, one_of, option
from benchmarks.runner import (
    ON_A_GPU,
    WRONG,
    Benchmark,
    Call,
    Column,
    Row,
    Rows,
    Untimed,
    best_s,
    by_case,
    case_of,
    markdown_table,
    time_or_status,
)  # fmt: skip
from ketscale.engines.circuits.ansaetze import qlcu_ansatz, strongly_entangling_ansatz, vqc_ansatz
from ketscale.engines.circuits.circuit import Angles, Circuit, pauli_words
from ketscale.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEED = 20240229


class Ansatz(NamedTuple):
    """How a circuit is built of qubits and layers, the letters that are measured on every wire, and its layers."""

    build: Callable[[int, int], Circuit]
    letters: str
    layers: int


ANSAETZE = {
    "strongly_entangling": Ansatz(strongly_entangling_ansatz, "Z", 3),
    "vqc": Ansatz(vqc_ansatz, "Z", 3),
    "qlcu": Ansatz(qlcu_ansatz, "XYZ", 2),
}
BATCHES = (1, 32, 128, 1024)
# Up to so many qubits a batch of this size still fits in the memory of every simulator.
LARGE_BATCH, LARGE_BATCH_QUBITS = 8192, 8
DEVICES = ("cpu", "cuda")


class Way(NamedTuple):
    """The module and name of a simulator's class, and the mode in which it is used, in a few words."""

    made: str
    mode: str


IN_JIT = "jax.jit, vmap"
OWN = {
    "fused": Way("own:Own", "torch, adjoint"),
    "fused-jax": Way("peers.in_jit:InJit", f"{IN_JIT}, adjoint"),
}
# A peer is one file and one line here: its name, and its class, which is made of the name and the device.
PEERS = {
    "default.qubit": Way("peers.pennylane:Devices", "torch, backprop, broadcast"),
    "default.qubit-jit": Way("peers.in_jit:InJit", f"{IN_JIT}, backprop"),
    "lightning.qubit": Way("peers.pennylane:Devices", "torch, adjoint Jacobian by sample"),
    "lightning.qubit-vjp": Way("peers.pennylane:Products", "its vector-Jacobian product, by sample"),
    "lightning.gpu": Way("peers.pennylane:Devices", "torch, adjoint Jacobian by sample"),
    "qulacs": Way("peers.qulacs:Qulacs", "its backprop, by sample"),
    "pyqtorch": Way("peers.pyqtorch:PyQTorch", "torch, autograd, batched"),
    "tensorcircuit": Way("peers.tensorcircuit:TensorCircuit", f"{IN_JIT}, backprop"),
    "deepquantum": Way("peers.deepquantum:DeepQuantum", "torch, autograd, batched"),
    "jax": Way("peers.jax_state:JaxState", f"{IN_JIT}, backprop"),
    "kronecker": Way("peers.kronecker:Kronecker", "torch, autograd, batched"),
}
# Plain torch, which needs no other package.
BY_HAND = "kronecker"
FLOOR = "floor"
SIMULATORS = {**OWN, **PEERS, FLOOR: Way("own:Floor", "torch, an autograd function that does nothing")}
# The ways of a user's QNode to the same numbers: on a device, or converted; and on a device that does nothing.
QNODE_FLOOR = "qnode-floor"
QNODES = {
    "qnode-default.qubit": Way("peers.pennylane:QNodes", "QNode in torch, backprop, broadcast"),
    "qnode-lightning.qubit": Way("peers.pennylane:QNodes", "QNode in torch, adjoint Jacobian"),
    "qnode-fused": Way("peers.pennylane:QNodes", "QNode in torch, adjoint"),
    "qnode-fused-jit": Way("peers.in_jit:InJit", f"QNode in {IN_JIT}, adjoint"),
    QNODE_FLOOR: Way("peers.pennylane:QNodes", "QNode in torch, a device that does nothing"),
    "from_qnode": Way("peers.pennylane:QNodes", "converted QNode in torch, adjoint"),
}
# QNodes are timed only if they are named.
KNOWN = {**SIMULATORS, **QNODES}
EMPTY = (FLOOR, QNODE_FLOOR)  # simulate nothing, and are compared with nothing
# The simulators that run on one kind of device only.
BOUND_TO = {
    **dict.fromkeys(("fused-jax", "lightning.qubit", "lightning.qubit-vjp", "qulacs", FLOOR), "cpu"),
    **dict.fromkeys(("qnode-lightning.qubit", "qnode-fused-jit", QNODE_FLOOR), "cpu"),
    "lightning.gpu": "cuda",
}

# Simulators have to agree on so many samples, to this share of the norm of what is expected.
CHECKED = 8
TOLERANCES: dict[type[np.floating[Any]], float] = {np.float64: 1e-8, np.float32: 1e-3}
# The same for a graph's replay and the call that it was captured from, in fp32: only sums may be in another order.
REPLAY_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Loss:
    """The sum over samples and words of coefficients * expectation values, which is evaluated and differentiated.

    inputs: (batch, columns), weights: (columns,), coefficients: (batch, words); radians, all of `real`.
    The circuit has no constant angles, which the outside simulators are not written for. shots: so many for each sample,
    and then the value alone is asked for; 0 for exact values and gradients.
    """

    circuit: Circuit
    words: tuple[str, ...]
    inputs: NDArray[Any]
    weights: NDArray[Any]
    coefficients: NDArray[Any]
    shots: int = 0

    def __post_init__(self) -> None:
        if any(column.kind == "constant" for gate in self.circuit.gates for column in gate.columns):
            raise ValueError("a loss's angles are inputs and weights, not constants")

    @property
    def real(self) -> np.dtype[Any]:
        """The precision, float32 or float64."""
        return self.inputs.dtype


class Simulator(Protocol):
    """A simulator under test, made of its name and the device.

    uncapturable: why its calls cannot be captured in a CUDA graph; None if they can.
    """

    uncapturable: str | None

    def prepare(self, loss: Loss) -> Call:
        """The call to time: it gives the loss (a scalar) and its gradients by inputs and weights; with shots the loss alone.

        It starts from arrays of the simulator's own kind and ends when all numbers are there. The gradient by inputs
        or weights that the circuit does not have may be left out.
        """
        ...


def loss_of(case: CircuitCase, dtype: type[np.floating[Any]]) -> Loss:
    """The loss of a case: the same numbers, rounded, in either precision, and fewer rows for a smaller batch."""
    build, letters, _ = ANSAETZE[case.ansatz]
    circuit = build(case.qubits, case.layers)
    weights, inputs, coefficients, noise = (np.random.default_rng((SEED, stream)) for stream in range(4))
    words, samples = pauli_words(case.qubits, letters), case.batch
    if case.words:
        words, samples = _hamiltonian(case.qubits, case.words, noise), 1
    return Loss(
        circuit,
        words,
        inputs.uniform(-np.pi, np.pi, (case.batch, circuit.inputs)).astype(dtype),
        weights.uniform(-np.pi, np.pi, circuit.weights).astype(dtype),
        np.repeat(coefficients.standard_normal((samples, len(words))), case.batch // samples, 0).astype(
            dtype
        ),
        case.shots,
    )


def _hamiltonian(qubits: int, count: int, rng: np.random.Generator) -> tuple[str, ...]:
    """So many different Pauli words, not the identity."""
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(rng.choice(list("IXYZ"), qubits))] = None
        words.pop("I" * qubits, None)
    return tuple(words)


def torch_call(loss: Loss, expval: Callable[[Angles], torch.Tensor], device: torch.device) -> Call:
    """The call of a simulator that torch differentiates; `expval` gives real (batch, words)."""
    inputs, weights, coefficients = (
        torch.tensor(part, device=device) for part in (loss.inputs, loss.weights, loss.coefficients)
    )
    angles = Angles(inputs, weights)
    if loss.shots:

        def drawn() -> tuple[torch.Tensor, ...]:
            with torch.no_grad():
                return ((expval(angles) * coefficients).sum(),)

        return drawn
    # autograd refuses a tensor that nothing depends on, such as weights of shape (0,).
    leaves = [tensor.requires_grad_() for tensor in angles if tensor.numel()]

    def call() -> tuple[torch.Tensor, ...]:
        value = (expval(angles) * coefficients).sum()
        return value.detach(), *torch.autograd.grad(value, leaves)

    return call


def create(name: str, device: torch.device) -> Simulator:
    """The simulator of this name.

    Raises:
        UserError: it is not installed.
    """
    module, result = KNOWN[name].made.split(":")
    simulator: Simulator = getattr(import_module(f"benchmarks.{module}"), result)(name, device)
    return simulator


def disagreement(simulator: Simulator, reference: Simulator, case: CircuitCase) -> str | None:
    """Why a simulator fails on the case's circuit, with `CHECKED` samples; None where it agrees."""
    small = case._replace(batch=CHECKED)
    expected = vector(reference.prepare(loss_of(small, np.float64))())
    for dtype, tolerance in TOLERANCES.items():
        actual = vector(simulator.prepare(loss_of(small, dtype))())
        if actual.shape != expected.shape:
            return f"{dtype.__name__}: {actual.size} numbers instead of {expected.size}"
        error = distance(actual, expected)
        if not error <= tolerance:  # NaN fails too
            return f"{dtype.__name__}: off by {error:.1e} of the norm"
    return None


def distance(actual: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """The distance as a share of the norm of what is expected."""
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def vector(result: tuple[Any, ...]) -> NDArray[np.float64]:
    """Loss and gradients one after the other."""
    parts = [part.cpu() if isinstance(part, torch.Tensor) else part for part in result]
    return np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in parts])


@dataclass(kw_only=True)
class Simulators(Benchmark):
    """What the benchmarks of simulators of circuits share."""

    case = CircuitCase
    predicts, first_counts, drawn = True, False, True
    columns = (
        Column("mode"),
        *ON_A_GPU,
        # `literal_flops` per second of the shorter time, and as a share of what the device can do at best, measured in
        # the same case: matrix products on a CPU, multiply-adds without tensor cores on a GPU.
        Column("gflops"),
        Column("fraction"),
        Column("peak_bytes"),
    )

    simulators: tuple[str, ...] = option((), names(KNOWN), "simulators")
    budget: float = option(20, SECONDS, "skip a simulator if one call is predicted to take longer")
    device: str = option("cpu", one_of(DEVICES), "device to compute on")

    def check(self) -> None:
        for name in self.simulators:
            if BOUND_TO.get(name, self.device) != self.device:
                raise UserError(f"--simulators: {name} runs on {BOUND_TO[name]} only, not on {self.device}")

    @property
    def names(self) -> tuple[str, ...]:
        """The simulators to time."""
        able = (name for name in SIMULATORS if BOUND_TO.get(name, self.device) == self.device)
        return self.simulators or tuple(able)

    def open(self) -> None:
        """Create the simulators and their reference: default.qubit on the CPU, or `kronecker` without PennyLane."""
        self.install(lambda name: create(name, self.on), self.names)
        self.ceiling = ceiling.of(self.on)
        try:
            self.refer_to("default.qubit")
        except UserError:
            self.refer_to(BY_HAND)

    def refer_to(self, name: str) -> None:
        """Let simulators agree with this one, in double precision on the CPU."""
        self._reference, self.reference = create(name, torch.device("cpu")), name
        self._wrong: dict[tuple[str, str, int], str | None] = {}

    def subjects(self, case: CircuitCase) -> list[str]:
        """All, but the floor at a batch of 1 only."""
        return [name for name in self.found if name != FLOOR or case.batch == 1]

    def row(self, case: CircuitCase, name: str) -> Row:
        return super().row(case, name) | {"mode": KNOWN[name].mode}

    def prepare(self, case: CircuitCase, name: str, row: Row) -> Call:
        call: Call = self.installed(name).prepare(loss_of(case, np.float32))
        return call

    def agree(self, case: CircuitCase, name: str, row: Row, result: Any) -> None:
        """Each circuit is checked once, since compiling takes long."""
        if name in EMPTY:
            return
        key = (name, case.ansatz, case.qubits)
        if key not in self._wrong:
            self._wrong[key] = disagreement(self.found[name], self._reference, case)
        if self._wrong[key]:
            raise Untimed(WRONG, str(self._wrong[key]))

    def calls(self, case: CircuitCase, name: str, row: Row, call: Call) -> dict[str, Call]:
        """The call and, on a GPU, its replay as a graph."""
        row["peak_bytes"] = machine.peak_bytes(call, self.on)
        if self.capture is None:
            return {"": call}
        if self.found[name].uncapturable:
            row["graph_reason"] = self.found[name].uncapturable
            return {"": call}

        def differs(replay: Call) -> str | None:
            error = distance(vector(replay()), vector(call()))
            return None if error <= REPLAY_TOLERANCE else f"the replay is off by {error:.1e} of the norm"

        return self.with_graph(row, call, differs, call)

    def finish(self, case: CircuitCase, rows: Any, calls: Any, rate: float | None) -> None:
        """Add arithmetic."""
        example = loss_of(case._replace(batch=1), np.float32)
        for name, row in rows.items():
            seconds = best_s(row)
            if name in EMPTY or seconds is None:
                continue
            flops = literal_flops(example.circuit, example.words) * case.batch
            row["gflops"] = ceiling.gflops(flops, seconds)
            row["fraction"] = row["gflops"] / rate if rate else None

    @classmethod
    def table(cls, rows: Rows) -> list[str]:
        """A row for each case, with the shorter median time of every simulator."""
        present = [name for name in KNOWN if any(row["simulator"] == name for row in rows)]
        gains = {f.case: f"{f.speedup:.3g}x ({f.peer})" for f in factors(rows)}
        cases: dict[CircuitCase, dict[str, str]] = {}
        for row in rows:
            cases.setdefault(case_of(CircuitCase, row), {})[row["simulator"]] = time_or_status(row)
        head = [
            *CircuitCase._fields,
            *(f"{name} ({KNOWN[name].mode})" for name in present),
            "fused over fastest peer",
        ]
        lines = (
            [*case, *(cells.get(name, "") for name in present), gains.get(case, "")]
            for case, cells in cases.items()
        )
        return markdown_table(head, lines)


@dataclass(kw_only=True)
class Circuits(Simulators):
    """The benchmark of simulators. batch: empty for those of `BATCHES` and, where it fits, a large one."""

    text = "value and gradient of small circuits with every simulator"

    ansatz: tuple[str, ...] = option(tuple(ANSAETZE), names(ANSAETZE), "circuits")
    # The rings of qlcu need two wires.
    qubits: tuple[int, ...] = option((4, 6, 8, 10, 12), numbers(2), "numbers of qubits")
    batch: tuple[int, ...] = option((), numbers(1), "batch sizes")
    layers: int | None = option(None, number(1), "layers of every circuit (default: 3, qlcu 2)")

    def cases(self) -> Iterator[CircuitCase]:
        """All cases, the batches of a circuit in ascending order: each predicts the time of the next."""
        for ansatz in self.ansatz:
            for qubits in self.qubits:
                fits = qubits <= LARGE_BATCH_QUBITS or self.device == "cuda"
                for batch in sorted(self.batch or (*BATCHES, *((LARGE_BATCH,) if fits else ()))):
                    yield CircuitCase(ansatz, qubits, batch, self.layers or ANSAETZE[ansatz].layers)

    @classmethod
    def summary(cls, rows: Rows) -> list[str]:
        return summary(rows)

    @classmethod
    def draw(cls, result: dict[str, Any]) -> Figure:
        """How much faster `fused` is than its fastest peer."""
        from benchmarks.figures import heatmap

        return heatmap(result, factors(result["rows"]))


# --- the benchmark in a few numbers: ratios of simulators in the same case, never across cases ---

# Amplitudes of a batch from which arithmetic, rather than the call itself, takes the time.
LARGE = 32768
SMALL_LEAST_BATCH = 32
WIDE_BATCH = 128


def times(rows: Rows) -> dict[CircuitCase, dict[str, float]]:
    """Median seconds of the simulators that were timed, by case; the shorter of a call's and its graph's."""
    return {
        case: {name: best_s(row) or 0.0 for name, row in result.items()}
        for case, result in by_case(CircuitCase, rows).items()
    }


def factors(rows: Rows) -> list[Factors]:
    """The factors of every case where both `fused` and a peer were timed."""
    out = []
    for case, timed in times(rows).items():
        peers = {name: timed[name] for name in PEERS if name in timed}
        if "fused" in timed and peers:
            peer = min(peers, key=peers.__getitem__)
            out.append(Factors(case, peer, peers[peer] / timed["fused"]))
    return out


def summary(rows: Rows) -> list[str]:
    """One statement a line; what was not measured is left out."""
    every, out = factors(rows), []
    large = [f for f in every if f.case.batch * 2**f.case.qubits >= LARGE]
    small = [f for f in every if f not in large and f.case.batch >= SMALL_LEAST_BATCH]
    for name, result in (
        (f"batch * 2^n >= {LARGE}", large),
        (f"smaller, batch >= {SMALL_LEAST_BATCH}", small),
    ):
        if result:
            worst = min(result, key=lambda f: f.speedup)
            out.append(
                f"fused over its fastest peer, {name}: median {median(f.speedup for f in result):.3g}x, "
                f"worst {worst.speedup:.3g}x ({worst.case}, {worst.peer}), {len(result)} cell(s)"
            )
    wide = [row for row in rows if row["batch"] >= WIDE_BATCH]
    over = [ratio for case, ratio in _ratios(wide, "lightning.qubit", "fused") if case.qubits <= 10]
    if over:
        where = f"batch >= {WIDE_BATCH}, at most 10 qubits"
        out.append(f"fused over lightning.qubit, {where}: at least {min(over):.3g}x")
    shares = [
        row["fraction"]
        for row in wide
        if row["simulator"] == "fused" and row["qubits"] >= 8 and row["fraction"] is not None
    ]
    if shares:
        where = f"at least 8 qubits, batch >= {WIDE_BATCH}"
        out.append(f"fused of the device's rate, {where}: min {min(shares):.2f}, median {median(shares):.2f}")
    return out + [
        f"fused over the floor, {case}: {ratio:.3g}x"
        for case, ratio in _ratios(rows, "fused", FLOOR)
        if (case.qubits, case.batch) == (4, 1)
    ]


def _ratios(rows: Rows, slower: str, faster: str) -> list[tuple[CircuitCase, float]]:
    """The time of one simulator over that of another, where both were timed."""
    return [
        (case, timed[slower] / timed[faster])
        for case, timed in times(rows).items()
        if {slower, faster} <= timed.keys()
    ]
