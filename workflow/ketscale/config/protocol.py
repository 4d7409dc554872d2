"""A protocol: how a run is trained and timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from ketscale.config.block import Above0, Block, Name, Positive
from ketscale.config.search import Search


class Plateau(Block, frozen=True, kw_only=True):
    """Multiply the learning rate by `factor` after more than `patience` epochs without a better validation loss."""

    factor: Annotated[float, Meta(gt=0, lt=1)]
    patience: Annotated[int, Meta(ge=0)]


class Cosine(Block, frozen=True, kw_only=True):
    """Let the learning rate fall to `minimum` along half a cosine, over all epochs, as torch's CosineAnnealingLR does."""

    minimum: Annotated[float, Meta(ge=0)] = 0.0


class EarlyStopping(Block, frozen=True, kw_only=True):
    """Stop after `patience` epochs without a better value of a validation metric."""

    monitor: Annotated[Name, Meta(description="loss, or a metric of the workload's family")]
    patience: Positive


# The settings of a protocol without epochs and steps, which is for models that are fitted.
_OF_FITS = frozenset({"precision", "timed", "keep_model", "search"})


class Protocol(Block, frozen=True, kw_only=True):
    """How a run is trained and timed; or fitted, without epochs and steps."""

    later: ClassVar[frozenset[str]] = frozenset({"loss", "class_weights", "momentum", "cosine"})
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({"probe": None})

    # fmt: off
    precision: Annotated[Literal["fp32", "fp64", "amp"], Meta(description="amp: automatic mixed precision, GPUs only")]
    features: Annotated[Literal["cached", "inline"], Meta(description="cached: embeddings are read from disk; "
        "inline: the feature network runs in every step")] = "cached"
    epochs: Annotated[Positive | None, Meta(description="Train for at most this many epochs, with validation and "
        "test")] = None
    steps: Annotated[Positive | None, Meta(description="Train for exactly this many steps, without validation")] = None
    steps_for: Annotated[dict[Name, Positive], Meta(description="Other numbers of steps for slow simulators, by name "
        "(none: classical models)")] = msgspec.field(default_factory=dict)
    limit_s: Annotated[Above0 | None, Meta(description="End training after so many seconds; a run that has not "
        "finished by then has the status timed_out. Every rank ends after the same step, the first one at the "
        "earliest")] = None
    timed: Annotated[bool, Meta(description="The run has the machine to itself; if it is interrupted, it starts "
        "anew, without checkpoints")]
    warmup: Annotated[int, Meta(ge=1, description="First steps, excluded from the steady step time, as those that "
        "prepare a CUDA graph are")] = 2
    sampled_steps: Annotated[int, Meta(ge=0, description="Steps whose spans are measured with the device "
        "synchronised (at most half of those after warm-up)")] = 0
    mistake: Annotated[Literal["one-device", "oversubscribed", "unsharded"] | None, Meta(description=
        "A misconfiguration on purpose, to measure its cost. one-device: all ranks run on the cores of the first "
        "rank; oversubscribed: each rank starts as many threads as there are cores; unsharded: each rank computes "
        "every sample")] = None
    optimiser: Annotated[Literal["adam", "adamw", "sgd", "gradient-descent", "l-bfgs"], Meta(description=
        "As torch.optim has them; gradient-descent is sgd without momentum; l-bfgs: SciPy's, with all samples at "
        "once, where each iteration counts as an epoch")] = "adam"
    momentum: Annotated[float, Meta(ge=0, lt=1, description="For sgd")] = 0.0
    loss: Annotated[Literal["cross-entropy", "hinge", "mean-squared-error", "huber"] | None, Meta(description=
        "Of classes cross-entropy, or hinge (torch's MultiMarginLoss); of numbers mean-squared-error, or huber, "
        "which is linear beyond one standard deviation. By default the first")] = None
    class_weights: Annotated[Literal["balanced"] | Annotated[list[Above0], Meta(min_length=1)] | None, Meta(
        description="Factors of the losses of each class's samples, in sorted order of the classes' names; balanced: "
        "as scikit-learn has it, all classes count alike")] = None
    sharding: Annotated[Literal["balanced", "strided"], Meta(description="How n ranks share a batch. balanced: "
        "contiguous parts; strided: every n-th sample")] = "balanced"
    parallel: Annotated[Literal["samples", "tasks"], Meta(description="What ranks share: samples, or parameter-shift "
        "evaluations (sample, angle, sign)")] = "samples"
    learning_rate: Annotated[Above0 | None, Meta(description="Of every optimiser but l-bfgs, which finds its own "
        "step lengths. Only models that are fitted take a protocol without it")] = None
    weight_decay: Annotated[float, Meta(ge=0, description="This times a parameter is added to its gradient; by "
        "adamw, this times the rate is taken off it")] = 0.0
    clip_norm: Annotated[Above0 | None, Meta(description="Largest gradient norm; if left out, gradients are not "
        "clipped")] = None
    dropout: Annotated[float, Meta(ge=0, lt=1, description="Rate of the dropouts of models that have some")] = 0.0
    plateau: Plateau | None = None
    cosine: Cosine | None = None
    early_stopping: EarlyStopping | None = None
    checkpoint_steps: Annotated[int, Meta(ge=1, description="Steps between checkpoints; a timed run has none, since "
        "its times must be whole")] = 200
    checkpoint_minutes: Annotated[float, Meta(gt=0, description="Minutes between checkpoints, for slow steps")] = 5.0
    keep_model: Annotated[bool, Meta(description="Keep the trained weights and the test predictions beside the "
        "record")] = True
    search: Annotated[Search | None, Meta(description="Try settings first, and train with those that do best on "
        "validation data")] = None
    # fmt: on

    @property
    def by_epochs(self) -> bool:
        """Whether training is counted in epochs, with validation and test, rather than in steps."""
        return self.epochs is not None

    @property
    def fitted(self) -> bool:
        """Whether it is for models that are fitted in one phase, without epochs and steps."""
        return not self.stepped

    @property
    def stepped(self) -> bool:
        """Whether the model is trained by steps, rather than fitted."""
        return self.epochs is not None or self.steps is not None

    @property
    def tested(self) -> bool:
        """Whether the model is validated and tested at the end."""
        return self.steps is None

    def faults(self) -> Iterator[str]:
        """Settings that contradict one another."""
        searched = self.search.settings if self.search else {}
        if self.search is not None:
            yield from (f"search.{fault}" for fault in self.search.faults())
            if not self.tested:
                yield "search: needs validation, which only epochs and fits have; leave it out"
            if self.timed:
                yield "search: trials are trained together, and timed runs alone; set timed: false"
            yield from (
                f"{name}: is searched; leave it out here" for name in self._changed if name in searched
            )
        if not self.stepped:
            if names := [name for name in (*self._changed, *searched) if name not in _OF_FITS]:
                yield (
                    "give epochs or steps; without them it is for models that are fitted, which take no "
                    f"{', '.join(names)}"
                )
            elif self.precision == "amp":
                yield "precision: amp needs steps; give fp32 or fp64 to models that are fitted"
            return
        if self.epochs is not None and self.steps is not None:
            yield "give epochs or steps, not both"
        if self.learning_rate is None and "learning_rate" not in searched:
            yield "learning_rate is missing"
        if self.momentum and self.optimiser != "sgd":
            yield f"momentum: {self.optimiser} does not support it; use optimiser: sgd, or leave it out"
        if self.cosine and self.plateau:
            yield "cosine: plateau sets the learning rate too; leave one of them out"
        if self.steps is None:
            if self.steps_for:
                yield "steps_for: only shortens a protocol with steps; this one has epochs"
            return
        for setting in (name for name in self._changed if name in ("plateau", "cosine", "early_stopping")):
            yield f"{setting}: needs epochs, with validation, but this protocol has steps; use epochs or leave it out"
        lengths = {"steps": self.steps} | {f"steps_for.{key}": value for key, value in self.steps_for.items()}
        for setting, steps in lengths.items():
            if steps <= self.warmup:
                yield f"{setting}: {steps} steps are all warm-up (warmup: {self.warmup}); give more than {self.warmup}"
        # Slow simulators (steps_for) may sample fewer steps. The protocol's own steps must leave some unsampled.
        if self.sampled_steps and self.warmup + self.sampled_steps >= self.steps:
            yield f"sampled_steps: with warmup they leave none of {self.steps} steps to time"

    @property
    def _changed(self) -> list[str]:
        """The settings that do not have their default."""
        plain = Protocol(precision=self.precision, timed=self.timed)
        return [name for name in self.__struct_fields__ if getattr(self, name) != getattr(plain, name)]

    def for_run(self, simulator: str, model: str) -> Protocol:
        """The protocol for runs of a simulator and a model: with its number of steps, and what is searched for it."""
        steps = self.steps_for.get(simulator, self.steps)
        search = self.search and self.search.for_model(model)
        return msgspec.structs.replace(self, steps=steps, steps_for={}, search=search)
