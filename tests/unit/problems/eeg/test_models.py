"""The models of the EEG family: sizes as published, and numbers equal to literal circuits in PennyLane."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pennylane as qml
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import gelu, silu, softplus

from ketscale.config.circuits import CircuitSimulator
from ketscale.engines.circuits.simulator import Simulator
from ketscale.layers.complex_weights import parameter_count
from ketscale.problems.eeg.hydra import Hydra, HydraHybrid
from ketscale.problems.eeg.mamba import Mamba, MambaHybrid, MambaHybridLite, MambaLite
from ketscale.problems.eeg.state_space import ClassicalHydra, ClassicalMamba
from ketscale.simulators.factory import build_simulator

Array = NDArray[Any]
QUANTUM: dict[str, Any] = {
    "hydra": Hydra,
    "hydra_hybrid": HydraHybrid,
    "mamba": Mamba,
    "mamba_hybrid": MambaHybrid,
    "mamba_lite": MambaLite,
    "mamba_hybrid_lite": MambaHybridLite,
}


@cache
def simulator(name: str) -> Simulator:
    return build_simulator(name, CircuitSimulator.of_name(name), torch.device("cpu"))


def model(
    name: str, qubits: int, layers: int, inputs: tuple[int, int], simulated: str = "fused", **more: Any
) -> nn.Module:
    torch.manual_seed(3)
    result: nn.Module = QUANTUM[name](
        qubits, layers, simulator(simulated), inputs=inputs, outputs=2, dropout=0.1, **more
    )
    return result.eval()


# --- sizes ---


@pytest.mark.parametrize(
    "name, qubits, count",
    [
        ("hydra", 6, 6170), ("hydra_hybrid", 6, 7196), ("mamba", 6, 5002), ("mamba_hybrid", 6, 19365),
        ("hydra", 10, 13034), ("hydra_hybrid", 10, 15824), ("mamba", 8, 18160), ("mamba_hybrid", 10, 28037),
        ("mamba_lite", 6, 7433), ("mamba_hybrid_lite", 6, 7262),
    ],
)  # fmt: skip
def test_parameters_are_as_many_as_published(name: str, qubits: int, count: int) -> None:
    assert parameter_count(model(name, qubits, 2, (64, 249))) == count


@pytest.mark.parametrize("kind, count", [(ClassicalMamba, 241922), (ClassicalHydra, 240322)])
def test_classical_parameters_are_as_many_as_published(kind: Any, count: int) -> None:
    assert parameter_count(kind(inputs=(64, 249), outputs=2, dropout=0.1)) == count


# --- numbers, against circuits written out in PennyLane ---


class Reference:
    """A model's weights by name, and a second way to compute with them: numpy, and PennyLane gate by gate."""

    def __init__(self, made: nn.Module, qubits: int, layers: int) -> None:
        self.weights = {name: value.double().numpy() for name, value in made.state_dict().items()}
        self.n, self.layers = qubits, layers

    def linear(self, name: str, x: Array) -> Array:
        bias = self.weights.get(f"{name}.bias", 0.0)
        return np.asarray(x @ self.weights[f"{name}.weight"].T + bias)

    def complex(self, name: str) -> Array:
        pairs = self.weights[name]
        return np.asarray(pairs[:, 0] + 1j * pairs[:, 1])

    def angles(self, name: str, x: Array, turn: float) -> Array:
        return turn / (1 + np.exp(-self.linear(f"{name}.linear", x))) + self.weights[f"{name}.offsets"]

    def state(self, gates: Callable[[], None], start: Array | None = None) -> Array:
        @qml.qnode(qml.device("default.qubit", wires=self.n))
        def run() -> Any:
            if start is not None:
                qml.StatePrep(start, wires=range(self.n))
            gates()
            return qml.state()

        return np.asarray(run())

    def values(self, state: Array) -> Array:
        """X on all wires, then Y, then Z."""
        paulis = (qml.PauliX, qml.PauliY, qml.PauliZ)
        words = [qml.matrix(pauli(w), wire_order=range(self.n)) for pauli in paulis for w in range(self.n)]
        return np.array([np.vdot(state, word @ state).real for word in words])

    # --- circuits ---

    def on_all(self, gate: Any, angles: Array) -> None:
        for wire, angle in zip(range(self.n), angles, strict=True):
            gate(angle, wires=wire)

    def ring(self, gate: Any, angles: Array) -> None:
        for wire, angle in zip(range(self.n), angles, strict=True):
            gate(angle, wires=[wire, (wire + 1) % self.n])

    def qlcu(self, angles: Array) -> None:
        for layer in angles.reshape(self.layers, 4, self.n):
            self.on_all(qml.RY, layer[0])
            self.ring(qml.IsingXX, layer[1])
            self.on_all(qml.RY, layer[2])
            self.ring(qml.IsingYY, layer[3])

    def shift(self) -> None:
        for wire in range(self.n - 1):
            qml.SWAP(wires=[wire, wire + 1])

    def flip(self) -> None:
        for wire in range(self.n // 2):
            qml.SWAP(wires=[wire, self.n - 1 - wire])

    def skip(self, angles: Array) -> None:
        for gate, part in zip((qml.RX, qml.RY, qml.RZ), angles.reshape(3, self.n), strict=True):
            self.on_all(gate, part)

    def branches(self, angles: Array) -> list[Array]:
        def forward() -> None:
            self.qlcu(angles)
            self.shift()

        def backward() -> None:
            self.flip()
            forward()
            self.flip()

        return [
            self.state(gates)
            for gates in (forward, backward, lambda: self.skip(self.weights["core.skip_angles"]))
        ]

    def mixture(self, values: list[Array]) -> Array:
        weights = np.abs(self.weights["core.mixture.weights"])
        mixed = sum(
            w * self.linear(f"core.mixture.branches.{i}", v)
            for i, (w, v) in enumerate(zip(weights / weights.sum(), values, strict=True))
        )
        return self.linear("core.mixture.out", np.asarray(mixed))

    # --- cores, of one row ---

    def hydra(self, row: Array) -> Array:
        a = self.angles("core.angles", row, 2 * 3.14159)
        psi = sum(
            c * b for c, b in zip(self.complex("core.coefficients.pairs"), self.branches(a), strict=True)
        )
        return self.linear("core.out", self.values(psi / (np.linalg.norm(psi) + 1e-9)))

    def hydra_hybrid(self, row: Array) -> Array:
        a = self.angles("core.angles", row, 2 * 3.14159)
        return self.mixture([self.values(state) for state in self.branches(a)])

    def amplitude(self, row: Array) -> Array:
        n, weights = self.n, self.weights
        x = self.linear("core.amplitudes", row)
        x = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * weights["core.norm.weight"] + weights["core.norm.bias"]
        x = x / np.linalg.norm(x)

        def ssm() -> None:
            angles = iter(weights["core.ssm_angles"])
            for _ in range(self.layers):
                for wire in range(n):
                    qml.RY(next(angles), wires=wire)
                    qml.RZ(next(angles), wires=wire)
                for wire in range(n - 1):
                    qml.CRX(next(angles), wires=[wire, wire + 1])
                self.on_all(qml.RY, weights["core.b"])
                self.on_all(qml.RX, np.array([next(angles) for _ in range(n)]))
                self.on_all(qml.RZ, weights["core.c"])

        def gate() -> None:
            self.on_all(qml.RY, weights["core.gate_angles"])
            for wire in range(n - 1):
                qml.CNOT(wires=[wire, wire + 1])

        def skip() -> None:
            self.on_all(qml.RZ, weights["core.skip_angles"])

        coefficients = self.complex("core.coefficients")
        v = sum(
            c * self.values(self.state(gates, x))
            for c, gates in zip(coefficients, (ssm, gate, skip), strict=True)
        )
        v = np.abs(v) / np.sqrt(np.sum(np.abs(v) ** 2) + 1e-8)
        return self.linear("core.mlp.3", np.maximum(self.linear("core.mlp.0", v), 0))

    def angle(self, row: Array) -> Array:
        n, weights = self.n, self.weights
        a = self.angles("core.angles", row, 2 * np.pi)

        def ssm() -> None:
            for layer in a.reshape(self.layers, 4, n):
                self.on_all(qml.RY, layer[0])
                self.ring(qml.IsingXX, layer[1])
                self.on_all(qml.RY, weights["core.b"])
                self.on_all(qml.RY, layer[2])
                self.ring(qml.IsingYY, layer[3])
                self.on_all(qml.RZ, weights["core.c"])
                self.on_all(qml.RX, weights["core.dt"])

        def gate() -> None:
            angles = iter(weights["core.gate_angles"])
            for _ in range(self.layers):
                self.on_all(qml.RX, np.array([next(angles) for _ in range(n)]))
                for wire in range(n - 1):
                    qml.CRZ(next(angles), wires=[wire, wire + 1])
                self.on_all(qml.RY, np.array([next(angles) for _ in range(n)]))
                qml.CRZ(next(angles), wires=[n - 1, 0])

        circuits = (ssm, gate, lambda: self.skip(weights["core.skip_angles"]))
        return self.mixture([self.values(self.state(gates)) for gates in circuits])

    # --- whole models, of one trial (channels, steps) ---

    def per_step(self, x: Array, core: Callable[[Array], Array], complex_weights: bool) -> Array:
        values = np.array([core(self.linear("embed", row)) for row in x.T])
        if complex_weights:
            w = self.complex("over_time.weights.pairs")
            summed = np.abs(w / np.abs(w).sum() @ values)
        else:
            w = np.exp(self.weights["over_time.weights"])
            summed = w / w.sum() @ values
        return self.linear("classifier", summed)

    def pooled(self, x: Array) -> Array:
        """Convolution of width 3 with zeros around, SiLU, mean over time."""
        kernel, bias = self.weights["convolution.weight"], self.weights["convolution.bias"]
        if kernel.shape[1] == 1:
            kernel = kernel * np.eye(len(kernel))[:, :, None]
        padded = np.pad(x, ((0, 0), (1, 1)))
        windows = np.stack([padded[:, k : k + x.shape[1]] for k in range(3)], axis=-1)
        y = np.einsum("oik,itk->ot", kernel, windows) + bias[:, None]
        return (y / (1 + np.exp(-y))).mean(1)

    def logits(self, name: str, x: Array) -> Array:
        match name:
            case "hydra":
                return self.per_step(x, self.hydra, complex_weights=True)
            case "hydra_hybrid":
                return self.per_step(x, self.hydra_hybrid, complex_weights=False)
            case "mamba_lite":
                return self.per_step(x, self.amplitude, complex_weights=True)
            case "mamba_hybrid_lite":
                return self.per_step(x, self.angle, complex_weights=False)
            case "mamba":
                return self.amplitude(self.pooled(x))
            case _:
                return self.linear("classifier", self.angle(self.linear("embed", self.pooled(x))))


@pytest.mark.parametrize("qubits", [3, 4])
@pytest.mark.parametrize("name", QUANTUM)
def test_a_model_agrees_with_its_circuits_in_pennylane(name: str, qubits: int) -> None:
    result = model(name, qubits, 2, (5, 3)).double()
    x = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    reference = Reference(result, qubits, 2)
    expected = np.array([reference.logits(name, trial) for trial in x.numpy()])
    np.testing.assert_allclose(result(x).detach().numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("name", QUANTUM)
def test_simulators_give_the_same_numbers_and_gradients(name: str) -> None:
    x = torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    results = []
    for by in ("fused", "default.qubit"):
        result = model(name, 3, 2, (5, 4), by).double()
        logits = result(x)
        results.append([logits, *torch.autograd.grad(logits.exp().sum(), list(result.parameters()))])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("name", QUANTUM)
def test_logits_do_not_depend_on_the_rest_of_the_batch_which_may_be_empty(name: str) -> None:
    x = torch.randn(5, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    result = model(name, 3, 2, (5, 4)).double()
    parts = torch.cat([result(part) for part in x.split([3, 1, 0, 1])])
    torch.testing.assert_close(parts, result(x), atol=1e-12, rtol=1e-12)
    sums = result.train()(x[:0]).sum()
    gradients = torch.autograd.grad(sums, list(result.parameters()), materialize_grads=True)
    assert all(not gradient.any() for gradient in gradients)


# --- classical scans ---


class Blocks:
    """A classical model's one trial, and what its blocks are made of, from the formulas with loops over time."""

    def __init__(self, kind: Any) -> None:
        torch.manual_seed(1)
        result, self.x = (
            kind(inputs=(5, 6), outputs=2, dropout=0.1).double().eval(),
            torch.randn(1, 5, 6).double(),
        )
        self.found, self.w = result(self.x)[0], result.state_dict()
        self.rows = self.linear("embed", self.x[0].T)

    def linear(self, name: str, v: torch.Tensor) -> torch.Tensor:
        return v @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", torch.zeros(()))

    def rms(self, name: str, v: torch.Tensor) -> torch.Tensor:
        return v / torch.sqrt((v**2).mean(-1, keepdim=True) + 1e-5) * self.w[f"{name}.weight"]

    def convolved(self, p: str, v: torch.Tensor) -> torch.Tensor:
        """Each channel's convolution with its own last four values, (steps, channels)."""
        kernel, padded = self.w[f"{p}.ssm.convolution.weight"], torch.cat([v.new_zeros(3, v.shape[1]), v])
        summed = sum(padded[k : k + len(v)] * kernel[:, 0, k] for k in range(4))
        return silu(summed + self.w[f"{p}.ssm.convolution.bias"])

    def steps(self, p: str, rank: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return softplus(self.linear(f"{p}.ssm.dt", rank)), -torch.exp(self.w[f"{p}.ssm.a_log"])


def test_a_classical_mamba_step_by_step() -> None:
    result = Blocks(ClassicalMamba)
    rows = result.rows
    for p in ("blocks.0", "blocks.1"):
        inner, z = result.linear(f"{p}.enter", result.rms(f"{p}.norm", rows)).split(256, dim=-1)
        inner = result.convolved(p, inner)
        rank, b, c = result.linear(f"{p}.select", inner).split([8, 16, 16], dim=-1)
        dt, a = result.steps(p, rank)
        y = _recurrence(inner, dt, b, c, a, dt) + result.w[f"{p}.ssm.d"] * inner
        rows = rows + result.linear(f"{p}.leave", y * silu(z))
    torch.testing.assert_close(result.found, result.linear("classifier", result.rms("norm", rows).mean(0)))


def test_a_classical_hydra_step_by_step() -> None:
    result = Blocks(ClassicalHydra)
    rows = result.rows
    for p in ("blocks.0", "blocks.1"):
        z, inner, b, c, rank = result.linear(f"{p}.enter", rows).split([256, 256, 16, 16, 8], dim=-1)
        inner = result.convolved(p, inner)
        dt, a = result.steps(p, rank)
        one = torch.ones_like(dt)
        ahead = _recurrence(inner, dt, b, c, a, one)
        back = _recurrence(inner.flip(0), dt.flip(0), b.flip(0), c.flip(0), a, one).flip(0)
        y = result.rms(f"{p}.inner_norm", ahead + back + 2 * result.w[f"{p}.ssm.d"] * inner)
        rows = rows + result.rms(f"{p}.norm", result.linear(f"{p}.leave", y * silu(z)))
    hidden = gelu(result.linear("classifier.0", result.rms("norm", rows).mean(0)))
    torch.testing.assert_close(result.found, result.linear("classifier.3", hidden))


def _recurrence(
    x: torch.Tensor, dt: torch.Tensor, b: torch.Tensor, c: torch.Tensor, a: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    h, out = torch.zeros_like(a), []
    for t in range(len(x)):
        h = torch.exp(dt[t][:, None] * a) * h + (scale[t] * x[t])[:, None] * b[t]
        out.append(h @ c[t])
    return torch.stack(out)
