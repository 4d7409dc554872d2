"""Hybrid models as estimators of scikit-learn.

The model is a dressed circuit (Mari et al., Quantum 4, 340 (2020)): a linear map and tanh from the features to angles,
a circuit, and a linear map from its expectation values to the outputs, all trained together by Adam in 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from ketscale.engines.circuits.ansaetze import strongly_entangling_ansatz
from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.simulator import Simulator
from ketscale.interop.expressions import check_circuit
from ketscale.interop.layer import Layer, Observable
from ketscale.optional import needed_for
from ketscale.shapes import Float64

with needed_for("an estimator", "estimators"):
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import check_random_state, check_scalar
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_PARAMETERS = """
    circuit: gets the columns of X as its angles in radians, as they are: scale them before, as in a pipeline. None is
        a circuit made to measure: X is standardised, a linear map and tanh give an angle in (-1, 1) rad for each of
        min(features, max_qubits) qubits, and strongly entangling layers follow.
    layers, max_qubits: the size of the circuit that is made; without effect if a circuit is given.
    observables: what is measured, as for `Layer`; None is Z on each wire.
    epochs, batch_size, learning_rate: settings of the training; the last batch of an epoch may be smaller.
    random_state: draws the weights and the order of the samples: an integer for the same model each time. torch's
        own generator is not touched.
    simulator: an object, a usual name such as 'default.qubit', or None for fused.

    After `fit`: n_features_in_; n_iter_, the epochs; loss_curve_, an epoch's mean loss; module_, the trained torch module,
    and scaler_, what standardises X before it (None if a circuit was given).

    Raises:
        TypeError, ValueError: when fitted, a parameter is out of range, the loss is not finite, the circuit's inputs are
            not as many as X's features, or X or y is no data that scikit-learn accepts.
        UserError: when fitted, there is no such simulator, or an observable does not fit the circuit.
"""


class _Estimator(BaseEstimator):
    """What classifier and regressor share."""

    def __init__(
        self,
        circuit: Circuit | None = None,
        layers: int = 2,
        max_qubits: int = 6,
        observables: Sequence[Observable] | None = None,
        epochs: int = 50,
        batch_size: int = 32,
        learning_rate: float = 0.02,
        random_state: int | np.random.RandomState | None = None,
        simulator: Simulator | str | None = None,
    ) -> None:
        self.circuit = circuit
        self.layers = layers
        self.max_qubits = max_qubits
        self.observables = observables
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.simulator = simulator

    def _train(self, x: NDArray[np.float64], targets: torch.Tensor, outputs: int, loss: Loss) -> None:
        """Fit `module_` to targets (samples, ...)."""
        for name in ("layers", "max_qubits", "epochs", "batch_size"):
            check_scalar(getattr(self, name), name, Integral, min_val=1)
        check_scalar(self.learning_rate, "learning_rate", Real, min_val=0, include_boundaries="neither")
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        generator = torch.Generator().manual_seed(seed)
        self.scaler_ = StandardScaler().fit(x) if self.circuit is None else None
        self.module_ = self._module(x.shape[1], outputs, generator)
        angles = self._angles(x)
        optimiser = torch.optim.Adam(self.module_.parameters(), lr=self.learning_rate)
        self.loss_curve_ = []
        with torch.enable_grad():
            for _ in range(self.epochs):
                total = 0.0
                for rows in torch.randperm(len(x), generator=generator).split(self.batch_size):
                    optimiser.zero_grad()
                    value = loss(self.module_(angles[rows]), targets[rows])
                    value.backward()
                    optimiser.step()
                    total += value.item() * len(rows)
                if not np.isfinite(total):
                    raise ValueError(f"the loss is {total}: choose a smaller learning_rate, or scale X")
                self.loss_curve_.append(total / len(x))
        self.n_iter_ = self.epochs

    def _module(self, features: int, outputs: int, generator: torch.Generator) -> nn.Sequential:
        circuit = self.circuit
        before: list[nn.Module] = []
        # Made without numbers, since torch's modules draw theirs with the global generator.
        with torch.device("meta"):
            if circuit is None:
                circuit = strongly_entangling_ansatz(min(features, self.max_qubits), self.layers)
                before = [nn.Linear(features, circuit.inputs), nn.Tanh()]
            check_circuit(circuit, type(self).__name__)
            if not before and circuit.inputs != features:
                raise ValueError(f"the circuit has {circuit.inputs} inputs, but X has {features} features")
            layer = Layer(circuit, self.observables, simulator=self.simulator)
            module = nn.Sequential(*before, layer, nn.Linear(layer.outputs, outputs))
        module.double().to_empty(device="cpu")
        layer.reset_parameters(generator)
        for part in module:
            if isinstance(part, nn.Linear):
                # As in nn.Linear.
                bound = part.in_features**-0.5
                for parameter in part.parameters():
                    nn.init.uniform_(parameter, -bound, bound, generator=generator)
        return module

    def _angles(self, x: NDArray[np.float64]) -> torch.Tensor:
        return torch.tensor(x if self.scaler_ is None else self.scaler_.transform(x))

    def _outputs(self, X: ArrayLike) -> torch.Tensor:  # noqa: N803 (scikit-learn's name)
        """What the module gives, (samples, outputs)."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        with torch.no_grad():
            outputs: torch.Tensor = self.module_(self._angles(x))
        return outputs


class CircuitClassifier(ClassifierMixin, _Estimator):
    __doc__ = f"""A classifier of two or more classes, `classes_`: softmax of a dressed circuit's outputs, cross-entropy in nats.
{_PARAMETERS}
    Example:
        >>> features, labels = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
        >>> model = ketscale.CircuitClassifier(epochs=1, random_state=0).fit(features, labels)
        >>> model.predict(features).shape, model.predict_proba(features).shape, model.decision_function(features).shape
        ((20,), (20, 2), (20,))
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803
        """Train on X (samples, features) and labels y (samples,) of any type."""
        x, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class alone, {self.classes_[0]}: a classifier needs two or more")
        self._train(x, torch.tensor(codes), len(self.classes_), nn.functional.cross_entropy)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Logits (samples, classes); for two classes, the second's log-odds (samples,)."""
        logits = self._outputs(X).numpy()
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: ArrayLike) -> Float64[np.ndarray, "samples {len(self.classes_)}"]:  # noqa: N803
        """Probabilities (samples, classes) in the order of `classes_`."""
        return self._outputs(X).softmax(dim=1).numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """The most probable label of each sample (samples,)."""
        codes = self._outputs(X).argmax(dim=1).numpy()
        labels: NDArray[Any] = self.classes_[codes]
        return labels


class CircuitRegressor(RegressorMixin, _Estimator):
    __doc__ = f"""A regressor of a number: a dressed circuit's output, mean squared error.

    y is standardised for the training, so that a loss is in units of its variance.
{_PARAMETERS}
    Example:
        >>> features, labels = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
        >>> model = ketscale.CircuitRegressor(epochs=1, random_state=0).fit(features, labels)
        >>> model.predict(features).shape
        (20,)
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803
        """Train on X (samples, features) and numbers y (samples,)."""
        x, numbers = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        self._target_scaler = StandardScaler()
        targets = torch.tensor(self._target_scaler.fit_transform(numbers[:, None]))
        self._train(x, targets, 1, nn.functional.mse_loss)
        return self

    def predict(self, X: ArrayLike) -> Float64[np.ndarray, "samples ..."]:  # noqa: N803
        """A number for each sample (samples,)."""
        outputs = self._outputs(X).numpy()
        numbers: NDArray[np.float64] = self._target_scaler.inverse_transform(outputs)
        return numbers[:, 0]
