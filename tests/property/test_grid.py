"""A run and its path are one and the same thing, and no other text is taken for a path."""

from __future__ import annotations

import string

from hypothesis import example, given
from hypothesis import strategies as st

from ketscale import grid
from ketscale.grid import Run, SizeAxis
from tests.property import attempt

SIZES = (SizeAxis("q", "qubits", "qubits"), SizeAxis("l", "layers", "layers"))
NAMES = st.from_regex(rf"\A{grid.CONSTRAINTS['workload']}\Z")
COUNTS, FROM_ONE = st.integers(0, 10**6), st.integers(1, 10**6)
RUNS = st.builds(
    Run,
    workload=NAMES,
    model=NAMES,
    size=st.from_regex(rf"\A{grid.CONSTRAINTS['size']}\Z"),
    batch=FROM_ONE,
    simulator=NAMES,
    backend=st.sampled_from(["cpu", "gpu", "ddp", "ddp-cpu", "mpi"]),
    nodes=FROM_ONE,
    ranks=FROM_ONE,
    threads=FROM_ONE,
    protocol=NAMES,
    seed=COUNTS,
)


@st.composite
def mutated(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> str:
    """One of the texts with some characters replaced, left out or put in."""
    text = draw(texts)
    start = draw(st.integers(0, len(text)))
    length = draw(st.integers(0, 2))
    instead = draw(st.text(string.printable + "²٣é\0", max_size=2))
    return text[:start] + instead + text[start + length :]


@given(RUNS)
def test_parse_is_the_inverse_of_path(run: Run) -> None:
    assert Run.parse(run.path) == Run.parse(run.folder) == Run.parse(f"/somewhere/else/{run.path}") == run


@given(mutated(RUNS.map(lambda run: run.path)))
@example("w/m/q1-l1-b1/s/cpu-n1r1t1/p/seed1٣")
def test_a_mutated_path_is_refused_or_is_that_of_the_run_that_it_names(path: str) -> None:
    run, _ = attempt(lambda: Run.parse(path))
    # It may name the folder, and lie below others.
    assert run is None or f"/{path}".rstrip("/").endswith((f"/{run.name}", f"/{run.name}/{grid.RECORD}"))


@given(RUNS)
def test_a_layout_splits_into_what_it_was_made_of(run: Run) -> None:
    assert grid.layout(run.layout) == {axis: getattr(run, axis) for axis in grid.LAYOUT}


@given(mutated(RUNS.map(lambda run: run.layout)))
@example("cpu-n1r1t1٣")
def test_a_mutated_layout_is_refused_or_is_written_as_it_was(text: str) -> None:
    value, said = attempt(lambda: grid.layout(text))
    assert (
        "backend" in said if value is None else "{backend}-n{nodes}r{ranks}t{threads}".format(**value) == text
    )


@given(st.from_regex(rf"\A[qld]{grid.run.COUNT}(-[qld]{grid.run.COUNT}){{0,2}}\Z"))
def test_a_size_in_a_path_is_refused_or_is_written_as_it_was(text: str) -> None:
    numbers, message = attempt(lambda: grid.decode(SIZES, text))
    assert "q<qubits>-l<layers>" in message if numbers is None else grid.encode(SIZES, numbers) == text
