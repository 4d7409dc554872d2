"""Configs with one wrong value, and config files with wrong bytes: refused in words, or a config that can be run."""

from __future__ import annotations

import copy
import datetime
import json
import math
import random
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ketscale import analysis
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.problems.registry import FAMILIES
from tests.contract.tiny_study import config as tiny_config
from tests.faults import SEED, count

COUNT = count(150, len(FAMILIES))
LONGEST = 1100

HOSTILE: tuple[Any, ...] = (
    None, True, False, "", " ", "~", "0", "-1", "1e3", "nan", "é", "\u2028", "\ufeffx", "a/b", "../..", "/", "\0", "\n",
    "{word}", "{}", "%s", "$(touch pwned)", "`touch pwned`", "'; touch pwned; '", "-n", "--help", "x" * 100_000,
    -1, 0, 1, 2, 7, 60, 10**5, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400,
    0.0, -0.0, 1.0, 0.5, 2.5, 1e-300, 1e308, math.inf, -math.inf, math.nan,
    [], [[]], [None], {}, {"a": 1}, {1: 2}, {None: None}, {"": {}}, [0, 0], [1, "1"], [True], ["x"] * 1000,
    datetime.date(2026, 1, 1), b"\x00\xff",
)  # fmt: skip


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below a node."""
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in entries:
        yield (*path, key)
        yield from places(value, (*path, key))


def misspelt(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word) + 1)
    return word[:at] + rng.choice(string.printable) + word[at + rng.randrange(2) :]


def changed(value: Any, others: list[Any], rng: random.Random) -> Any:
    """Another value in the place of this one."""
    if isinstance(value, bool) or rng.random() < 0.4:
        return copy.deepcopy(rng.choice(HOSTILE))
    if rng.random() < 0.2:
        return copy.deepcopy(rng.choice(others))
    if isinstance(value, int | float):
        return rng.choice(
            [-value, value * 10 ** rng.randint(1, 12), value + 0.5, float(value), str(value), [value]]
        )
    if isinstance(value, str):
        return rng.choice(
            [misspelt(value, rng), value.upper(), value * 2, [value], {value: value}, value + "\n"]
        )
    if isinstance(value, list):
        return rng.choice(
            [value * 2, value[:-1], value[0] if value else 0, {str(i): v for i, v in enumerate(value)}]
        )
    return rng.choice(
        [
            list(value),
            str(value),
            {**value, "no_such_setting": 1},
            {misspelt(str(k), rng): v for k, v in value.items()},
        ]
    )


def mutated(config: dict[str, Any], rng: random.Random) -> tuple[dict[str, Any], str]:
    """A copy with one change, and the change in words."""
    damaged = copy.deepcopy(config)
    paths = list(places(config))
    *above, key = rng.choice(paths)
    parent: Any = damaged
    for step in above:
        parent = parent[step]
    others = [value for path in rng.choices(paths, k=5) if not isinstance(value := at(config, path), dict)]
    if rng.random() < 0.1:
        del parent[key]
        return damaged, f"without {(*above, key)}"
    parent[key] = changed(parent[key], others or [0], rng)
    return damaged, f"{(*above, key)} = {parent[key]!r:.300}"


def at(node: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        node = node[step]
    return node


def assert_refused_in_words_or_usable(path: Path, change: str) -> Config | None:
    """What is read from the file is a config that means the same to a run's job, or there is an error in words."""
    try:
        config = analysis.read(path)
    except UserError as error:
        said = str(error)
        assert said.strip() and len(said) <= LONGEST and said.isprintable(), f"{change}: {said!r:.2000}"
        return None
    again = analysis.of(json.loads(config.text), placed=False)
    assert [again.settings(run).hash for run in again.runs] == [
        config.settings(run).hash for run in config.runs
    ], change
    return config


@pytest.mark.parametrize("family", FAMILIES)
def test_a_config_with_one_wrong_value_is_refused_in_words_or_can_be_run(family: str, tmp_path: Path) -> None:
    whole, path = tiny_config(FAMILIES[family].tiny), tmp_path / "config.yaml"
    for number in range(COUNT):
        rng = random.Random(f"{SEED} {family} {number}")
        damaged, change = mutated(whole, rng)
        path.write_text(yaml.safe_dump(damaged, allow_unicode=True))
        assert_refused_in_words_or_usable(path, f"seed {SEED}, {family}, number {number}: {change}")
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_config_file_with_wrong_bytes_is_refused_in_words_or_can_be_run(
    family: str, tmp_path: Path
) -> None:
    whole, path = yaml.safe_dump(tiny_config(FAMILIES[family].tiny)).encode(), tmp_path / "config.yaml"
    for number in range(COUNT):
        rng = random.Random(f"{SEED} {family} bytes {number}")
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 1, 1, 5, 50])):
            place, part = rng.randrange(len(damaged)), rng.randrange(1, 30)
            damaged[place : place + rng.randrange(2) * part] = rng.choice(
                [
                    rng.randbytes(1),
                    rng.choice(b"[]{}&*!|>%@`'\",#:-\t\n ").to_bytes(),
                    damaged[place : place + part] * 2,
                ]
            )
        path.write_bytes(damaged)
        assert_refused_in_words_or_usable(path, f"seed {SEED}, {family}, number {number} of bytes")


@pytest.mark.parametrize("bracket", ["[", "{", "{a: ", "- "])
def test_a_deep_config_is_refused_in_words(tmp_path: Path, bracket: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(bracket * 100_000)
    assert assert_refused_in_words_or_usable(path, "deep") is None
