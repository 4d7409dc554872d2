"""Features that alone predict the target almost perfectly, as one does that was made from it: possible leaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ketscale.problems.samples import Samples

# The least score of a possible leak, and the fewest and the most training samples that are looked at.
ALMOST, FEW, MOST = 0.99, 20, 2000


def leaks(data: Samples) -> list[str]:
    """The names of features (or an array's numbers, from 0) each of which alone predicts a target almost perfectly.

    A shallow decision tree of one feature, or of one column's categories, predicts training samples from others of them, in
    five folds: balanced accuracy, or of a number R2, or the squared correlation of ranks. A feature without others may do that. Needs scikit-learn; without it
    none is reported.
    """
    import numpy as np

    try:
        from sklearn.metrics import balanced_accuracy_score, r2_score
        from sklearn.model_selection import KFold, cross_val_predict
        from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
    except ModuleNotFoundError:
        return []

    training = np.random.default_rng(0).permutation(data.splits["train"])[:MOST]
    widths = [len(column.categories or [""]) for column in data.columns] or [1] * data.values.shape[1]
    names = [column.name for column in data.columns] or list(map(str, range(len(widths))))
    if len(widths) < 2 or len(training) < FEW:
        return []
    numeric = data.targets.dtype.kind == "f"
    score, tree = (
        (r2_score, DecisionTreeRegressor) if numeric else (balanced_accuracy_score, DecisionTreeClassifier)
    )
    targets = data.targets[training].reshape(len(training), -1).T
    leaking = []
    for name, of_column in zip(
        names, np.split(data.values[training], np.cumsum(widths)[:-1], 1), strict=True
    ):
        feature = of_column if of_column.shape[1] == 1 else of_column.argmax(1)[:, None]
        for target in (each for each in targets if len(np.unique(each)) > 1):
            predicted = cross_val_predict(tree(max_depth=5, random_state=0), feature, target, cv=KFold(5))
            # Few samples say little of a curve, but their order does.
            ranks = _ranks(feature[:, 0]), _ranks(target)
            order = float(np.corrcoef(ranks[0], ranks[1])[0, 1] ** 2) if numeric and feature.std() else 0.0
            if max(score(target, predicted), order) >= ALMOST:
                leaking.append(name)
                break
    return leaking


def _ranks(values: NDArray[Any]) -> NDArray[np.intp]:
    """The ranks of values (n,), those of equal ones equal."""
    import numpy as np

    return np.unique(values, return_inverse=True)[1]


def warning(names: Sequence[str]) -> str:
    """Possible leaks in words; '' of none."""
    if not names:
        return ""
    verb = "alone predicts" if len(names) == 1 else "each alone predict"
    return f"possible leak: {', '.join(names)} {verb} what is to be predicted almost perfectly (docs/own-data.md)"
