"""`ketscale bench grams`: the Gram matrix of an IQP embedding, by `fused` in one call and by every peer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.options import SECONDS, names, number, numbers, option
from benchmarks.runner import WRONG, Benchmark, Call, Column, Row, Untimed
from ketscale.problems.vectors.kernels import Kernel

SEED = 20240229
OWN = "fused"
# A peer is one line here, and one class in `peers.iqp`, whose `prepare` gives the call.
PEERS = {
    "vectorised": "Torch",
    "jax": "Jax",
    "default.qubit": "Broadcast",
    "lightning.qubit": "Loop",
    "pennylane-pairs": "Pairs",
}
SIMULATORS = (OWN, *PEERS)
REFERENCE = "vectorised"
# Every entry is between 0 and 1, in double precision.
TOLERANCE = 1e-10


class GramCase(NamedTuple):
    """The size of a matrix: samples with a feature for each qubit, and the repetitions of the embedding."""

    qubits: int
    layers: int
    samples: int

    def __str__(self) -> str:
        return f"{self.qubits}q {self.layers}l {self.samples} samples"


def features_of(case: GramCase) -> NDArray[np.float64]:
    """Standardised features (samples, qubits)."""
    return np.random.default_rng(SEED).standard_normal((case.samples, case.qubits))


class Own:
    """The model `kernel`: all states in one call of fused, and one product of matrices."""

    def prepare(self, case: GramCase) -> Call:
        """The call that is timed: the matrix (samples, samples), from tensors."""
        model = Kernel(case.qubits, case.layers, None, case.qubits, 2, bandwidth=1.0).double()
        x = torch.tensor(features_of(case))

        def call() -> NDArray[np.float64]:
            with torch.no_grad():
                return model.gram(x).numpy()

        return call


def create(name: str) -> Any:
    """The simulator of this name.

    Raises:
        UserError: its package is not installed.
    """
    return Own() if name == OWN else getattr(import_module("benchmarks.peers.iqp"), PEERS[name])(name)


@dataclass(kw_only=True)
class Grams(Benchmark):
    """Times are of the whole matrix, in double precision."""

    text = "the Gram matrix of an IQP embedding with every simulator"
    case = GramCase
    columns = (
        # How many times as long as fused it takes.
        Column("by_fused", "by fused", lambda ratio: f"{ratio:.3g}x"),
        # The samples of the part that is timed, if the time is a projection.
        Column("part", "timed samples"),
    )

    qubits: tuple[int, ...] = option((4, 8), numbers(1), "numbers of qubits")
    layers: int = option(2, number(1), "repetitions of the embedding")
    samples: tuple[int, ...] = option((100, 1000), numbers(2), "numbers of samples")
    simulators: tuple[str, ...] = option(SIMULATORS, names(SIMULATORS), "simulators")
    budget: float = option(60, SECONDS, "skip a simulator whose first call takes longer")

    def cases(self) -> Iterator[GramCase]:
        for qubits in self.qubits:
            for samples in sorted(self.samples):
                yield GramCase(qubits, self.layers, samples)

    def open(self) -> None:
        """Create the simulators."""
        self.install(create, self.simulators)
        self._expected, self.reference = create(REFERENCE), REFERENCE

    def prepare(self, case: GramCase, name: str, row: Row) -> Call:
        """The call; of a simulator that takes every pair by itself that of the first samples, whose pairs are counted."""
        simulator = self.installed(name)
        most = getattr(simulator, "most", case.samples)
        if most < case.samples:
            row["part"] = most
        call: Call = simulator.prepare(case._replace(samples=min(most, case.samples)))
        return call

    def agree(self, case: GramCase, name: str, row: Row, result: Any) -> None:
        """Every entry is that of the reference."""
        expected = self._expected.prepare(case)()[: len(result), : len(result)]
        error = float(np.abs(result - expected).max())
        if not error <= TOLERANCE:
            raise Untimed(WRONG, f"off by {error:.1e}")

    def times(self, row: Row) -> float:
        """The pairs of the whole matrix beside those of the part."""
        if row["part"] is None:
            return 1.0
        pairs = [samples * (samples - 1) / 2 for samples in (row["samples"], row["part"])]
        return pairs[0] / pairs[1]

    def finish(self, case: GramCase, rows: Any, calls: Any, rate: float | None) -> None:
        """Add how many times as long as fused each takes."""
        own = rows.get(OWN, {}).get("median_s")
        for row in rows.values():
            if own and row["median_s"]:
                row["by_fused"] = row["median_s"] / own
