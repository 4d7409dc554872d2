"""`kernel` and `svm`: support vector machines on a circuit's kernel, and on a radial basis function, its control."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import one_hot

from ketscale.engines.circuits.ansaetze import iqp_ansatz
from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.simulator import Simulator
from ketscale.errors import UserError
from ketscale.optional import needed_for
from ketscale.problems.fitted import Fitted, Samples
from ketscale.shapes import Float
from ketscale.simulators.factory import resolve_simulator

# Here, so that it is no part of the time of a fit.
with needed_for("a support vector machine", "estimators"):
    from sklearn.svm import SVC, SVR

# What is tried where a setting is left to validation, the smoothest first: of equals the first is kept. Both models have the
# same trials. Larger costs make the solver take minutes on noisy data.
COSTS = (0.1, 1.0, 10.0, 100.0)
BANDWIDTHS = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0)

Real = NDArray[np.float64]


class _Trial(NamedTuple):
    """Machines: the dual coefficients (samples, decisions), and the intercepts (decisions,); and how good they are.

    score: on the validation samples, larger is better.
    """

    score: float
    bandwidth: float
    cost: float
    dual: torch.Tensor
    intercept: torch.Tensor


class VectorMachine(Fitted):
    """Support vector machines: one for each pair of classes, or gives each column of numbers.

    Pairs of classes vote; a class's decision values, squeezed below a vote, break ties, as in scikit-learn's SVC. The machines
    are scikit-learn's, whose C is `cost`; those of numbers have its epsilon of 0.1 standard deviations.

    Args:
        inputs, outputs: how many features a sample has; how many classes or columns there are.
        width: how many principal components replace the features, each with variance 1; `inputs` for the features.
        cost, bandwidth: None to choose among `COSTS` and `BANDWIDTHS` by validation.

    Raises:
        UserError: there are more components than features; or, when fitted, there is a choice and no validation; or, when
            called, it is not fitted, or takes another number of features.
    """

    mean: torch.Tensor
    axes: torch.Tensor
    supports: torch.Tensor
    bandwidth: torch.Tensor
    votes: torch.Tensor

    def __init__(
        self, inputs: int, outputs: int, width: int, cost: float | None, bandwidth: float | None
    ) -> None:
        super().__init__()
        self.inputs, self.outputs, self.width = inputs, outputs, width
        if width > inputs:
            raise UserError(f"{self.name} has qubits: {width}, more than the {inputs} features of a sample")
        self.costs = COSTS if cost is None else (cost,)
        self.bandwidths = BANDWIDTHS if bandwidth is None else (bandwidth,)
        self.register_buffer("mean", torch.zeros(0))
        self.register_buffer("axes", torch.zeros(0, 0))
        self.register_buffer("supports", torch.zeros(0, self.width))
        self.register_buffer("bandwidth", torch.tensor(self.bandwidths[0], dtype=torch.float64))
        # Whether pairs of classes vote.
        self.register_buffer("votes", torch.tensor(False))
        self.dual = nn.Parameter(torch.zeros(0, 0))
        self.intercept = nn.Parameter(torch.zeros(0))

    @property
    def name(self) -> str:
        """What errors call it."""
        return type(self).__name__.lower()

    @abstractmethod
    def embedded(self, x: torch.Tensor) -> torch.Tensor:
        """What represents samples with components (batch, width) in `similarity`, a row each."""

    @abstractmethod
    def similarity(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The kernel of each two represented samples, real (rows of one, rows of other)."""

    def gram(self, x: Float[torch.Tensor, "samples width"]) -> Float[torch.Tensor, "samples samples"]:
        """The kernel of each two samples with the components x."""
        embedded = self.embedded(x)
        return self.similarity(embedded, embedded)

    def components(self, features: torch.Tensor) -> torch.Tensor:
        """The components (batch, width) of features (batch, inputs)."""
        if features.shape[1] != self.inputs:
            raise UserError(f"{self.name} has {self.inputs} features, not {features.shape[1]}")
        return (features - self.mean) @ self.axes if len(self.axes) else features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A score for each class, or a number for each column (batch, outputs), of features (batch, inputs)."""
        if not len(self.intercept):
            raise UserError(f"this {self.name} is not fitted yet: call its `fit`")
        kernel = self.similarity(self.embedded(self.components(x)), self.embedded(self.supports))
        return self._decided(kernel @ self.dual + self.intercept)

    def fit(self, train: Samples, validation: Samples | None) -> None:
        """Fit to features (n, inputs) with classes, int64 (n,), or standardised numbers (n, outputs)."""
        features, targets = train
        if len(self.costs) * len(self.bandwidths) > 1 and validation is None:
            raise UserError(f"{self.name} has no validation to choose cost and bandwidth by; give it both")
        if self.width < self.inputs:
            self.mean, self.axes = _principal(features, self.width)
        self.votes.fill_(targets.ndim == 1)
        x = self.components(features)
        best = max(self._trials(x, targets, validation), key=lambda trial: trial.score)
        self.bandwidth.fill_(best.bandwidth)
        grid = {"cost": self.costs, "bandwidth": self.bandwidths}
        self.chosen = {name: getattr(best, name) for name, values in grid.items() if len(values) > 1}
        self.tried = len(self.costs) * len(self.bandwidths)
        used = best.dual.any(dim=1)
        self.supports = x[used]
        self.dual, self.intercept = nn.Parameter(best.dual[used]), nn.Parameter(best.intercept)

    def _trials(self, x: torch.Tensor, targets: torch.Tensor, validation: Samples | None) -> Iterator[_Trial]:
        """The machines of all settings to try, the smoothest first."""
        labels = targets.cpu().numpy()
        for bandwidth in self.bandwidths:
            self.bandwidth.fill_(bandwidth)
            embedded = self.embedded(x)
            gram = self.similarity(embedded, embedded).double().cpu().numpy()
            across = validation and self.similarity(self.embedded(self.components(validation[0])), embedded)
            for cost in self.costs:
                machines = (
                    _pairs(gram, labels, cost, self.outputs) if self.votes else _columns(gram, labels, cost)
                )
                dual, intercept = (torch.from_numpy(part).to(x) for part in machines)
                score = 0.0
                if validation is not None and across is not None:
                    score = self._score(across @ dual + intercept, validation[1])
                yield _Trial(score, bandwidth, cost, dual, intercept)

    def _decided(self, values: torch.Tensor) -> torch.Tensor:
        """The outputs, from the values of each decision."""
        return _voted(values, self.outputs) if self.votes else values

    def _score(self, values: torch.Tensor, targets: torch.Tensor) -> float:
        """How good decisions are, larger is better: the share of right classes, or minus the mean squared error."""
        outputs = self._decided(values)
        if self.votes:
            return float((outputs.argmax(1) == targets).double().mean())
        return -float((outputs - targets).square().mean())


class Kernel(VectorMachine):
    """The kernel |<phi(x')|phi(x)>|^2 of an IQP embedding: `layers` of `ansaetze.iqp_ansatz` on `qubits` wires.

    A wire's angle is a feature times the bandwidth (Shaydulin & Wild, Phys. Rev. A 106, 042407 (2022)), a pair's the product
    of its wires' angles, in radians. If there are more features than qubits, their principal components take their place.
    All states of a Gram matrix are one call of the simulator.

    simulator: an object, a usual name such as "default.qubit", or None for fused.
    """

    def __init__(
        self,
        qubits: int = 4,
        layers: int = 2,
        simulator: Simulator | str | None = None,
        inputs: int = 512,
        outputs: int = 10,
        cost: float | None = None,
        bandwidth: float | None = None,
    ) -> None:
        super().__init__(inputs, outputs, qubits, cost, bandwidth)
        self.simulator = resolve_simulator(simulator)
        self.circuit = iqp_ansatz(qubits, layers)

    def embedded(self, x: torch.Tensor) -> torch.Tensor:
        """The states, complex (batch, 2^qubits)."""
        angles = x * self.bandwidth
        first, second = torch.triu_indices(self.width, self.width, offset=1, device=x.device)
        inputs = torch.cat([angles, angles[:, first] * angles[:, second]], dim=1)
        return self.simulator.state(self.circuit, Angles(inputs, inputs.new_zeros(0)))

    def similarity(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The squared absolute values of the states' overlaps."""
        overlaps = one @ other.mH
        return overlaps.real.square() + overlaps.imag.square()


class SVM(VectorMachine):
    """The kernel exp(-bandwidth^2 |x' - x|^2 / width), a radial basis function.

    At bandwidth 1 that is scikit-learn's gamma='scale' for standardised features.
    """

    def __init__(
        self, inputs: int = 512, outputs: int = 10, cost: float | None = None, bandwidth: float | None = None
    ) -> None:
        super().__init__(inputs, outputs, inputs, cost, bandwidth)

    def embedded(self, x: torch.Tensor) -> torch.Tensor:
        """The features in units of the radius."""
        return x * (self.bandwidth / self.width**0.5)

    def similarity(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """A Gaussian of the distance."""
        squares = one.square().sum(1)[:, None] + other.square().sum(1) - 2 * one @ other.mT
        return torch.exp(-squares.clamp(min=0))


def _principal(features: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean (inputs,) of features (n, inputs), and what maps deviations to components of variance 1 (inputs, width).

    The largest entry of each direction is positive, so that it does not depend on the machine.
    """
    mean = features.double().mean(0)
    centred = features.double() - mean
    variances, directions = torch.linalg.eigh(centred.T @ centred / len(centred))
    variances, directions = variances.flip(0)[:width], directions.flip(1)[:, :width]
    largest = directions.gather(0, directions.abs().argmax(0, keepdim=True))
    # A direction in which nothing varies says nothing.
    scale = torch.where(variances > 1e-12 * variances[0], variances, torch.inf).rsqrt()
    return mean.to(features), (directions * largest.sign() * scale).to(features).contiguous()


def _pairs(gram: Real, classes: NDArray[np.int64], cost: float, count: int) -> tuple[Real, Real]:
    """Dual coefficients and intercepts of the pairs (0, 1), (0, 2), ... of `count` classes; positive is for the first."""
    pairs = list(combinations(range(count), 2))
    dual, intercept = np.zeros((len(gram), len(pairs))), np.zeros(len(pairs))
    for at, (first, second) in enumerate(pairs):
        rows = np.flatnonzero((classes == first) | (classes == second))
        if len(present := np.unique(classes[rows])) < 2:
            # A class without training samples loses.
            intercept[at] = np.sign((present == first).sum() - (present == second).sum())
            continue
        machine = SVC(C=cost, kernel="precomputed").fit(gram[np.ix_(rows, rows)], classes[rows])
        # scikit-learn's sign of two classes is that of the second.
        dual[rows[machine.support_], at] = -machine.dual_coef_[0]
        intercept[at] = -machine.intercept_[0]
    return dual, intercept


def _columns(gram: Real, numbers: Real, cost: float) -> tuple[Real, Real]:
    """Dual coefficients and intercepts of a machine for each column of numbers (n, columns)."""
    dual, intercept = np.zeros(numbers.shape), np.zeros(numbers.shape[1])
    for at, column in enumerate(numbers.T):
        machine = SVR(C=cost, kernel="precomputed").fit(gram, column)
        dual[machine.support_, at] = machine.dual_coef_[0]
        intercept[at] = machine.intercept_[0]
    return dual, intercept


def _voted(values: torch.Tensor, classes: int) -> torch.Tensor:
    """The score of each class (n, classes), from the values of all pairs (n, pairs): votes and squeezed sums."""
    first, second = (
        one_hot(each, classes).to(values) for each in torch.triu_indices(classes, classes, offset=1)
    )
    won = (values >= 0).to(values)
    sums = values @ (first - second)
    return won @ first + (1 - won) @ second + sums / (3 * (sums.abs() + 1))
