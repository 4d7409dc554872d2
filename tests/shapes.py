"""Checks the shapes that public functions state in their types, whenever a test calls one of them.

The types are strings of jaxtyping's, for which beartype looks at every call. A function may refuse what its types do not
allow in words of its own; it must not take it.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import inspect
import re
import sys
import types
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from typing import Any

from ketscale import shapes

CHECKED = {
    "ketscale.engines.circuits.fused": ("Fused.state", "Fused.expval"),
    "ketscale.engines.dynamics.systems": ("noise_rates", "relaxation_rates"),
    "ketscale.engines.dynamics.propagators": ("Batched.state", "Batched.expval"),
    "ketscale.dynamics.fidelities": ("fidelity",),
    "ketscale.engines.pulses.drives": ("Pulses.sample",),
    "ketscale.engines.pulses.frame": ("Frame.amplitudes",),
    "ketscale.engines.pulses.integrators": ("Integrator.times", "Integrator.evolve"),
    "ketscale.engines.pulses.virtual_z": ("best_angles",),
    "ketscale.interop.estimators": ("CircuitClassifier.predict_proba", "CircuitRegressor.predict"),
    "ketscale.interop.layer": ("Layer.forward",),
}
STATES_A_SHAPE = re.compile(r"\b(?:Complex|Float|Shaped)\w*\[")


def checked(function: Callable[..., Any], module: types.ModuleType) -> Callable[..., Any]:
    """The function, which fails if it takes or returns other shapes than its types say."""
    import jaxtyping
    import torch
    from beartype import beartype

    names = {**vars(module), **{name: getattr(jaxtyping, name) for name in shapes.__all__}}

    def stated(annotation: str) -> Any:
        return eval(annotation, names) if STATES_A_SHAPE.search(annotation) else Any

    @functools.wraps(function)
    def plain(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    signature = inspect.signature(function)
    plain.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            one.replace(annotation=stated(str(one.annotation))) for one in signature.parameters.values()
        ],
        return_annotation=stated(str(signature.return_annotation)),
    )
    strict = jaxtyping.jaxtyped(plain, typechecker=beartype)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*arguments, **named)
        try:
            return strict(*arguments, **named)
        except jaxtyping.TypeCheckError as error:
            if "checking the parameters" in str(error):
                function(*arguments, **named)
            raise

    return call


def check(module: types.ModuleType) -> None:
    """Put checked functions in the places of those of a module."""
    for name in CHECKED[module.__name__]:
        *above, last = name.split(".")
        place: Any = functools.reduce(getattr, above, module)
        setattr(place, last, checked(vars(place)[last], module))


class _Finder(MetaPathFinder):
    """Finds the modules of `CHECKED` as others do, and checks them once they are executed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in CHECKED:
            return None
        result = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, result))
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_check(module: types.ModuleType) -> None:
            execute(module)
            check(module)

        loader.exec_module = execute_and_check
        return spec


def install() -> None:
    """Check the functions from now on, in modules that have been imported and in those that will be.

    A machine for checks of GPUs or of other packages may lack what checks them; `test_shapes` fails without it.
    """
    if any(importlib.util.find_spec(package) is None for package in ("beartype", "jaxtyping")):
        return
    sys.meta_path.insert(0, _Finder())
    for name in CHECKED.keys() & sys.modules.keys():
        check(sys.modules[name])
