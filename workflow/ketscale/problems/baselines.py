"""Standard methods that stand beside a workload's models: what they reach, and those of vectors of features.

A method is fitted to the training part alone. Validation chooses its penalty, by the loss. scikit-learn does the mathematics. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ketscale.errors import UserError, short
from ketscale.measure.form import Right
from ketscale.measure.right import influence_on_rmse, packed, packed_numbers
from ketscale.optional import needed_for

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Parts = Mapping[str, NDArray[np.int64]]

# Factors of the squared weights, beside the sum of the losses; of equally good ones the strongest, which is first, is taken.
PENALTIES = tuple(10.0**power for power in range(4, -4, -1))
# Without a validation part.
USUAL = 1.0
# A probability that rounding has made 0.
TINY = 1e-15


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a standard method reaches on one split of a workload's data.

    name: of the method, in words. fold: see `Split.fold`. penalty: the one that was chosen; None if the method has none.
    validation, test: the headline metric on that part; None if it has no samples. right: the cases that the metric on the
    test is the share of; None if it is no share. influence: see `Quality`. why: what kept the method from being fitted; '' if nothing did.
    """

    name: str
    fold: int | None = None
    penalty: float | None = None
    validation: float | None = None
    test: float | None = None
    right: Right | None = None
    influence: str | None = None
    why: str = ""


# Makes an estimator of scikit-learn with this penalty, if it has one.
Make = Callable[[Any], Any]


def of_vectors(inputs: NDArray[Any], targets: NDArray[Any], parts: Parts) -> Iterator[Baseline]:
    """The baselines of vectors of features: majority class and logistic regression, or mean and ridge regression.

    Args:
        inputs: the vectors (n, features), as models see them.
        targets: int64 classes (n,), or real numbers (n, columns).
        parts: the indices (int64) of the samples in train, validation and test.
    """
    yield constant(inputs, targets, parts)
    name, make = ("ridge regression", _ridge) if _real(targets) else ("logistic regression", _logistic)
    yield fitted(name, make, inputs, targets, parts, PENALTIES)


def constant(inputs: NDArray[Any], targets: NDArray[Any], parts: Parts, fold: int | None = None) -> Baseline:
    """The majority class of the training part, or its mean; as for `of_vectors`, with `inputs` of any shape (n, ...)."""
    name, make = ("mean", _mean) if _real(targets) else ("majority class", _majority)
    return fitted(name, make, inputs, targets, parts, fold=fold)


def fitted(
    name: str,
    make: Make,
    inputs: NDArray[Any],
    targets: NDArray[Any],
    parts: Parts,
    penalties: Sequence[float | None] = (None,),
    fold: int | None = None,
) -> Baseline:
    """A method with each of these penalties, of which the best on validation is tested; as for `constant`.

    If a package is missing, or the data do not suit the method, the result says so.
    """
    train, validated = parts["train"], len(parts.get("validation", ())) > 0
    if _real(targets):
        # scikit-learn would take the targets in the precision of the inputs, in which 1e9 and 1e9 + 1 are equal.
        inputs = inputs.astype(float)
    if not validated and len(penalties) > 1:
        penalties = (USUAL,)
    try:
        with needed_for(f"the baseline {name}", "estimators"):
            models = {penalty: make(penalty).fit(inputs[train], targets[train]) for penalty in penalties}
    except (UserError, RuntimeError, ValueError) as error:
        return Baseline(name, fold, why=short(error, 500))

    def loss(penalty: float | None) -> float:
        rows = parts["validation"]
        return _loss(models[penalty], inputs[rows], targets[rows])

    def predicted(part: str) -> Any:
        rows = parts[part]
        return best.predict(inputs[rows]).reshape(targets[rows].shape)

    penalty = min(penalties, key=loss) if validated and len(penalties) > 1 else penalties[0]
    best, test = models[penalty], targets[parts["test"]]
    cases = None if _real(targets) else packed([int(case)] for case in predicted("test") == test)
    validation = _headline(targets[parts["validation"]], predicted("validation")) if validated else None
    moved = influence_on_rmse(test, predicted("test")) if _real(targets) else None
    influence = None if moved is None else packed_numbers(moved.tolist())
    return Baseline(name, fold, penalty, validation, _headline(test, predicted("test")), cases, influence)


def _loss(model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> float:
    """What the validation of models monitors, too: the mean cross-entropy, or the error."""
    if _real(targets):
        return _headline(targets, model.predict(inputs).reshape(targets.shape))
    import numpy as np

    given = model.predict_proba(inputs)[np.arange(len(targets)), targets]
    return float(-np.log(given.clip(min=TINY)).mean())


def _headline(targets: NDArray[Any], predicted: NDArray[Any]) -> float:
    """The share of right classes, or the root of the mean squared error, the mean over columns."""
    if not _real(targets):
        return float((predicted == targets).mean())
    return float((((predicted - targets) ** 2).mean(0) ** 0.5).mean())


def _real(targets: NDArray[Any]) -> bool:
    return targets.dtype.kind == "f"


def _majority(penalty: None) -> Any:
    from sklearn.dummy import DummyClassifier

    return DummyClassifier()


def _mean(penalty: None) -> Any:
    from sklearn.dummy import DummyRegressor

    return DummyRegressor()


def _logistic(penalty: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=1 / penalty, max_iter=1000)


def _ridge(penalty: float) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(alpha=penalty)
