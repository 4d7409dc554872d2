"""A search: trials of settings of training and of models, which a protocol asks for, and how they are drawn.

What is drawn is a function of the seed, the setting's name and the trial alone, so that models get the same rates.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from ketscale.config.block import Block, Name, Seed, fields
from ketscale.errors import UserError

# Settings of a protocol that may be searched: those that change neither how long a run trains nor what it computes.
SEARCHED = ("learning_rate", "weight_decay", "clip_norm", "dropout")
# Real numbers are rounded to so many digits, as people write them.
_DIGITS = 4


class Range(Block, frozen=True, kw_only=True):
    """Numbers from `low` to `high`; whole ones if both are written as whole numbers."""

    low: float | int
    high: float | int
    scale: Annotated[Literal["linear", "log"], Meta(description="What is uniform: the number, or its logarithm")] = "linear"  # fmt: skip

    def faults(self) -> Iterator[str]:
        """It is empty, or has no logarithm."""
        if self.low >= self.high:
            yield f"low: {self.low} should be below high ({self.high})"
        elif self.scale == "log" and self.low <= 0:
            yield f"low: {self.low} has no logarithm; give a number above 0, or scale: linear"

    @property
    def integral(self) -> bool:
        """Whether its numbers are whole."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def points(self) -> float:
        """How many numbers it has."""
        return self.high - self.low + 1 if self.integral else math.inf

    def at(self, share: float) -> int | float:
        """The number below which this share of them lies, from 0 to 1."""
        # A whole number has as much room as its neighbours, at the ends too.
        low, high = (self.low - 0.5, self.high + 0.5) if self.integral else (self.low, self.high)
        if self.scale == "log":
            number = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            number = low + share * (high - low)
        rounded = round(number) if self.integral else float(f"{number:.{_DIGITS}g}")
        return min(max(rounded, self.low), self.high)


_Space = dict[Name, Annotated[list[Any], Meta(min_length=1)] | Range]


class Point(NamedTuple):
    """The settings of a trial: those of training, and those of the model."""

    training: dict[str, Any]
    model: dict[str, Any]


class Search(Block, frozen=True, kw_only=True):
    """Trials of settings, one of which validation selects for each point of a study; all seeds train it."""

    # fmt: off
    trials: Annotated[int, Meta(ge=2, le=1000, description="How many settings are tried, as many for each model")]
    seed: Annotated[Seed, Meta(description="The seed of what is drawn")] = 0
    method: Annotated[Literal["random", "grid"], Meta(description="random: drawn, none twice; grid: every "
        "combination of the lists, as many as `trials`")] = "random"
    seeds: Annotated[list[Seed], Meta(min_length=1, description="The seeds that each trial is trained with, none of "
        "them a seed of the study; their mean is compared")] = msgspec.field(default_factory=lambda: [1000])
    settings: Annotated[_Space, Meta(description="Lists, or ranges (low, high, scale), of learning_rate, "
        "weight_decay, clip_norm or dropout")] = msgspec.field(default_factory=dict)
    models: Annotated[dict[Name, _Space], Meta(description="Lists, or ranges, of settings of models, by the model's "
        "name")] = msgspec.field(default_factory=dict)
    # fmt: on

    def faults(self) -> Iterator[str]:
        """Settings that cannot be searched, and lists or ranges that are none."""
        for name in sorted(self.settings.keys() - set(SEARCHED)):
            yield f"settings.{name}: cannot be searched; choose from {', '.join(SEARCHED)}"
        if len(set(self.seeds)) < len(self.seeds):
            yield "seeds: a seed is given twice; keep one"
        spaces = {"settings": self.settings} | {f"models.{name}": each for name, each in self.models.items()}
        for where, name, values in (
            (where, *item) for where, space in spaces.items() for item in space.items()
        ):
            if isinstance(values, Range):
                yield from (f"{where}.{name}.{fault}" for fault in values.faults())
                if self.method == "grid":
                    yield f"{where}.{name}: a grid needs lists, not ranges; give a list, or method: random"
            elif len({_key(value) for value in values}) < len(values):
                yield f"{where}.{name}: a value is given twice; keep one"

    def space(self, model: str) -> dict[tuple[bool, str], Any]:
        """What is searched for a model, by whether it is a setting of the model and the setting's name, in a fixed order."""
        ranges = {(False, name): values for name, values in self.settings.items()}
        ranges |= {(True, name): values for name, values in self.models.get(model, {}).items()}
        return dict(sorted(ranges.items()))

    def lacks(self, model: str) -> str:
        """Why there are not as many settings as trials for a model; '' if there are."""
        spaces = self.space(model).values()
        count = math.prod(each.points if isinstance(each, Range) else len(each) for each in spaces)
        if self.method == "grid" and count != self.trials:
            return f"its lists multiply to {count} settings for {model}, but trials is {self.trials}; make them equal"
        if count < self.trials:
            return f"there are {count} settings for {model} and {self.trials} trials; give as many, or fewer trials"
        return ""

    def point(self, model: str, trial: int) -> Point:
        """The settings of a trial of a model, the first being number 0."""
        return _points(msgspec.json.encode(self.for_model(model)), model)[trial]

    def name(self, protocol: str, trial: int) -> str:
        """The name of a trial of the protocol with this name, in paths."""
        return f"{protocol}-t{trial:0{max(2, len(str(self.trials - 1)))}}"

    def typed(self, models: Mapping[str, type[Block]]) -> Search:
        """The search with ranges of real numbers where a setting takes them, and sorted lists, however they are written.

        models: the class of the settings of each model whose settings have types.
        """
        spaces = {}
        for name, space in self.models.items():
            fields_of = fields(models[name]) if name in models else {}
            real = {setting for setting, field in fields_of.items() if _takes_reals(field.type)}
            spaces[name] = {setting: _canonical(values, setting in real) for setting, values in space.items()}
        settings = {name: _canonical(values, True) for name, values in self.settings.items()}
        return msgspec.structs.replace(self, seeds=sorted(self.seeds), settings=settings, models=spaces)

    def for_model(self, model: str) -> Search:
        """The search as it concerns a model."""
        models = {name: space for name, space in self.models.items() if name == model}
        return msgspec.structs.replace(self, models=models)


@functools.lru_cache(maxsize=256)
def _points(encoded: bytes, model: str) -> tuple[Point, ...]:
    """The settings of every trial of a model by a search, which must have enough."""
    search = msgspec.json.decode(encoded, type=Search)
    space = search.space(model)
    every = itertools.product(*space.values()) if search.method == "grid" else _draws(search.seed, space)
    points = []
    for values in itertools.islice(every, search.trials):
        point = Point({}, {})
        for (of_model, name), value in zip(space, values, strict=True):
            point[of_model][name] = value
        points.append(point)
    return tuple(points)


def _draws(seed: int, space: Mapping[tuple[bool, str], Any]) -> Iterator[tuple[Any, ...]]:
    """The settings of one trial after the other, none twice.

    Raises:
        UserError: a narrow range has no more numbers.
    """
    texts = set[str]()
    for trial in itertools.count():
        for attempt in range(1000):
            values = tuple(_at(each, _share(seed, *key, trial, attempt)) for key, each in space.items())
            if repr(values) not in texts:
                break
        else:
            raise UserError(f"trials: {trial} trials have all settings that were found; ask for fewer")
        texts.add(repr(values))
        yield values


def _takes_reals(kind: Any) -> bool:
    return kind is float or any(map(_takes_reals, get_args(kind)))


def _canonical(values: list[Any] | Range, real: bool) -> list[Any] | Range:
    """A sorted list, or a range, of real numbers if the setting takes them."""
    if isinstance(values, list):
        return sorted(values, key=_key)
    return msgspec.structs.replace(values, low=float(values.low), high=float(values.high)) if real else values


def _share(*of: object) -> float:
    """A number from 0 to below 1 that is a function of these alone."""
    return int.from_bytes(hashlib.sha256(repr(of).encode()).digest()[:7]) / 2**56


def _at(values: Sequence[Any] | Range, share: float) -> Any:
    return values.at(share) if isinstance(values, Range) else values[int(share * len(values))]


def _key(value: Any) -> tuple[int, Any]:
    """By which values of a list are sorted: numbers before what is none. Equal if they are the same setting."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, value) if number else (1, repr(value))
