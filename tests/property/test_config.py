"""Any config is taken and means the same wherever it is read again, or it is refused in words that name the setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec import structs

from ketscale import analysis
from ketscale.config import Config, published_schema
from ketscale.config.block import resolved
from ketscale.grid import Run
from ketscale.problems.registry import FAMILIES
from tests.property import attempt, examples
from tests.property.configs import TINY, Place, at, block_types, drawn_fields, junk, places, redrawn, replaced

SCHEMA = jsonschema.Draft202012Validator(published_schema(FAMILIES))
NO_SETTING = "no_such_setting"
TEXT = yaml.safe_dump(TINY["images"]).encode()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config") / "config.yaml"


def meaning(config: Config) -> tuple[str, dict[Run, str]]:
    """The config's text and each run's hash. The runs' order follows that of the studies in the file, which decides nothing."""
    return config.text, {run: config.settings(run).hash for run in config.runs}


def assert_same(config: Config, other: Config) -> None:
    assert meaning(config) == meaning(other)


@given(redrawn())
def test_a_config_means_the_same_wherever_it_is_read_again(
    file: Path, drawn: tuple[dict[str, Any], list[Place]]
) -> None:
    complete, changed = drawn
    config, message = attempt(lambda: analysis.of(complete))
    if config is None:
        # The setting, or the block whose settings do not go together.
        assert any(str(key) in message for place in changed for key in place[1:]), (changed, message)
        return
    assert_same(config, analysis.of(json.loads(config.text), placed=False))
    file.write_text(yaml.safe_dump(complete, allow_unicode=True))
    assert_same(config, analysis.read(file))


@examples(5)
@given(junk())
def test_junk_is_refused_by_the_name_of_its_setting_or_can_be_run(
    drawn: tuple[dict[str, Any], Place],
) -> None:
    complete, place = drawn
    setting = next(key for key in reversed(place) if isinstance(key, str))
    config, message = attempt(lambda: analysis.of(complete))
    if config is None:
        # Without its s, where the names in a whole section are gone; or another one of its block, which it contradicts.
        named = [f"{'.'.join(map(str, place[:-1]))}.{other}:" for other in at(complete, place[:-1])]
        assert any(name in message for name in (setting.removesuffix("s"), *named)), (place, message)
        return
    assert_same(config, analysis.of(json.loads(config.text), placed=False))
    # An editor, which has the published schema, marks nothing that is taken.
    assert SCHEMA.is_valid(complete), (place, at(complete, place))


@given(st.data())
def test_unknown_settings_are_refused_all_at_once_each_with_its_path(data: st.DataObject) -> None:
    complete = changed = data.draw(st.sampled_from(list(TINY.values())))
    inner = [place for place in places(complete) if isinstance(at(complete, place), dict)]
    # Axes are looked at once all blocks are sound.
    axes = data.draw(st.booleans())
    there = [place for place in [(), *inner] if (place[:1] == ("studies",) and len(place) > 2) == axes]
    for block in data.draw(st.lists(st.sampled_from(there), min_size=1, max_size=4, unique=True)):
        changed = replaced(changed, (*block, NO_SETTING), 1)
    config, message = attempt(lambda: analysis.of(changed))
    wrong = {".".join(map(str, place)) for place in places(changed) if place[-1] == NO_SETTING}
    assert config is None and {line.split(":")[0] for line in message.splitlines()} == wrong


@given(st.data())
def test_a_field_that_came_later_is_in_no_hash_while_it_has_its_default(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted((each for each in block_types() if each.later), key=str)))
    values, required = drawn_fields(kind), [field.name for field in structs.fields(kind) if field.required]
    assume(kind.later & values.keys() and values.keys() >= set(required))
    name = data.draw(st.sampled_from(sorted(kind.later & values.keys())))
    value = data.draw(values[name])
    least = {each: data.draw(values[each]) for each in required}
    block = kind(**least)
    assert name not in block.content()
    other = structs.replace(block, **{name: value})
    assert (name in other.content()) == (value != getattr(block, name))
    assert resolved(kind, other.content(), "a record") == other


@given(
    st.integers(0, len(TEXT)),
    st.integers(0, 30),
    st.binary(max_size=4) | st.sampled_from("[]{}&*!|>%@`'\",#:-\t\n ").map(str.encode),
)
@example(0, len(TEXT), b"[" * 100_000)
@example(0, len(TEXT), b"{a: " * 100_000)
@example(0, len(TEXT), b"")
def test_a_file_with_wrong_bytes_is_refused_in_words_or_can_be_run(
    file: Path, start: int, length: int, instead: bytes
) -> None:
    file.write_bytes(TEXT[:start] + instead + TEXT[start + length :])
    config, _ = attempt(lambda: analysis.read(file))
    if config is not None:
        assert_same(config, analysis.of(json.loads(config.text), placed=False))
