"""The contract of a family's specification, for every family of the registry: its settings, without a training."""

from __future__ import annotations

import inspect

import pytest

from ketscale.config import Block, schema
from ketscale.problems.models import implementation
from ketscale.problems.registry import FAMILIES

KINDS = {
    f"{family.name}: {kind}": settings
    for family in FAMILIES.values()
    for kind, settings in {**family.workloads, **family.models}.items()
}


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_every_setting_of_a_workload_or_a_model_is_described(settings: type[Block]) -> None:
    """A class that has an annotation of the same name before it among the bases would take the description away."""
    properties = schema(settings)["$defs"][settings.__name__].get("properties", {})
    assert [name for name, rules in properties.items() if "description" not in str(rules)] == []


def test_a_model_that_takes_a_protocols_dropout_says_so() -> None:
    for family in FAMILIES.values():
        for name, model in family.models.items():
            takes = "dropout" in inspect.signature(implementation(model)).parameters
            assert model.has_dropout == takes, name
