"""The settings of the models of feature vectors, which several families take. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from ketscale.config import Baseline, Model

_TUNED = "chosen by validation if left out"


class _VectorMachine(Model, frozen=True, kw_only=True):
    fitted: ClassVar[bool] = True

    cost: Annotated[float, Meta(gt=0, description="Penalty C of a sample on the wrong side of its margin; "
        f"{_TUNED}")] | None = None  # fmt: skip
    bandwidth: Annotated[float, Meta(gt=0, description=f"Factor on the features; {_TUNED}")] | None = None


class KernelSettings(_VectorMachine, frozen=True, kw_only=True):
    """A support vector machine on the kernel of an IQP embedding: a circuit without weights, which is fitted."""

    implementation: ClassVar[str] = "ketscale.problems.vectors.kernels:Kernel"
    control: ClassVar[str | None] = "svm"


class SVMSettings(_VectorMachine, frozen=True, kw_only=True):
    """The classical control of `kernel`: a support vector machine on a radial basis function."""

    implementation: ClassVar[str] = "ketscale.problems.vectors.kernels:SVM"
    classical: ClassVar[bool] = True
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({"components": None})


class LinearSettings(Baseline, frozen=True, kw_only=True):
    """A linear model: logistic regression of classes, ridge regression of numbers."""

    implementation: ClassVar[str] = "ketscale.problems.vectors.linear:Linear"

    penalty: Annotated[float, Meta(gt=0, description=f"Factor of the squared weights; {_TUNED}, and 1 without "
        "any")] | None = None  # fmt: skip


class MajoritySettings(Baseline, frozen=True, kw_only=True):
    """The most frequent class of the training samples, or the mean of their numbers, whatever the sample is."""

    implementation: ClassVar[str] = "ketscale.problems.vectors.majority:Majority"


class VQCSettings(Model, frozen=True, kw_only=True):
    """A dense head on the features, a variational circuit, and a small map to the outputs."""

    implementation: ClassVar[str] = "ketscale.problems.vectors.vqc:VQC"
    has_dropout: ClassVar[bool] = True
    stacks: ClassVar[bool] = True
    control: ClassVar[str | None] = "mlp"

    ansatz: Annotated[Literal["ring", "strongly-entangling", "product"], Meta(description="Its circuit. ring: RY and a "
        "ring of CNOT; strongly-entangling: three angles a wire, and rings of CNOT; product: RZ and RY, without "
        "entanglement")] = "ring"  # fmt: skip


class MLPSettings(Model, frozen=True, kw_only=True):
    """The classical control of `vqc`: the same shape and size, without the circuit."""

    implementation: ClassVar[str] = "ketscale.problems.vectors.mlp:MLP"
    classical: ClassVar[bool] = True
    has_dropout: ClassVar[bool] = True
    stacks: ClassVar[bool] = True

    width: Annotated[int, Meta(ge=1, description="Width of the layer that replaces the circuit")] = 4


MODELS: Mapping[str, type[Model]] = {
    "vqc": VQCSettings,
    "mlp": MLPSettings,
    "kernel": KernelSettings,
    "svm": SVMSettings,
    "linear": LinearSettings,
    "majority": MajoritySettings,
}
