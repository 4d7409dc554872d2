"""What the specifications of families of classifiers have in common. Imports nothing heavy."""

from __future__ import annotations

from ketscale.config import Metric

# What `Classification` gives; see there.
CLASSIFICATION = (
    Metric("accuracy", "accuracy", "share correct", "up", chance="data"),
    Metric("auc", "AUC", "", "up", chance=0.5, least=0, most=1),
    Metric("f1", "F1", "", "up", least=0, most=1),
)
