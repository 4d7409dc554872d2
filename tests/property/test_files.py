"""Damage to data files of every kind: a reader gives data or one clear error, in little more memory than there was."""

from __future__ import annotations

import io
import resource
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ketscale.problems.eeg.specification import eeg_file
from ketscale.problems.images.resnet import read_weights, write_weights
from ketscale.problems.registry import workload_of
from ketscale.problems.sentences.sentences import Sentences
from ketscale.problems.sentences.sentences import read as read_sentences
from tests.own_files import ANIMALS, NETWORK, SIGNALS, VECTORS, npz, pictures
from tests.property import attempt, examples
from tests.unit.problems.eeg.edf_factory import RATE, write_edf

MORE_MEMORY = 2 << 30
# Limits of integers, and what the headers of text are made of.
MARKS = [b"", b"\0", b"\xff" * 4, b"\x7f", b"\x80\0\0\0", b"9", b"-", b" ", b"\n", b"(" * 5000]
KINDS = ["npz", "member", "png", "series", "edf", "sentences", "weights"]


def case(kind: str, folder: Path) -> tuple[Path, Callable[[], Any]]:
    """A sound file of a kind, and what reads it as a family does."""

    def of(**block: Any) -> Callable[[], Any]:
        def read() -> Any:
            workload = workload_of(block, "workloads.mine")
            workload.sources()
            return workload.load(None)  # type: ignore[attr-defined]

        return read

    match kind:
        case "npz" | "member":
            file = npz(folder, x=VECTORS, y=ANIMALS)
            return Path(file), of(kind="rows", file=file)
        case "series":
            file = npz(folder, x=SIGNALS, y=np.tile([1, 2], 20), groups=np.repeat(np.arange(5), 8))
            return Path(file), of(kind="series", file=file, split="groups", standardise=True)
        case "png":
            return pictures(folder) / "day/0.png", of(kind="image-folder", folder=str(folder), **NETWORK)
        case "edf":
            for run in (4, 8, 12):
                signal = 50 * np.random.default_rng(run).normal(size=(64, 15 * RATE))
                write_edf(
                    folder / eeg_file(1, run), signal, [(1.0 + 3 * i, f"T{1 + i % 2}") for i in range(4)]
                )
            block = {"subjects": [1], "runs": [4, 8, 12], "rate": 40, "split": "runs", "split_seed": 0}
            return folder / eeg_file(1, 4), of(
                kind="eegmmidb", folder=str(folder), window=[0.5, 2.5], **block
            )
        case "sentences":
            file = folder / "text.txt"
            file.write_text(
                "The bird sings\nÜber den Wolken\nold ships cross cold water\n歩 く 人\n", encoding="utf-8"
            )
            return file, lambda: Sentences.of(read_sentences(file))
    file = folder / "weights.safetensors"
    write_weights(file, {"a": torch.arange(6.0), "b": torch.ones(2, 3)}, {"kind": "selfsupervised"})
    return file, lambda: read_weights(file)


@st.composite
def damaged(draw: st.DrawFn, complete: bytes) -> bytes:
    """A content with one to three faults, most of them near its start, where headers are."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(complete)) | st.integers(0, min(128, len(complete))))
        end = draw(st.sampled_from([start, start + 1, start + 4, start + 40, len(complete)]))
        complete = complete[:start] + draw(st.sampled_from(MARKS) | st.binary(max_size=8)) + complete[end:]
    return complete


@contextmanager
def little_memory() -> Iterator[None]:
    """At most MORE_MEMORY beyond what there is."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MORE_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture(scope="module", params=KINDS)
def sound(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Callable[[], Any]]:
    return request.param, *case(request.param, tmp_path_factory.mktemp(request.param))


@examples(0.5)
@given(st.data())
def test_a_damaged_file_gives_data_or_one_clear_error(
    sound: tuple[str, Path, Callable[[], Any]], data: st.DataObject
) -> None:
    kind, file, read = sound
    complete = file.read_bytes()
    if kind in ("member", "series"):
        # With the checksum of what is damaged, which is an array in the archive.
        result = io.BytesIO()
        with zipfile.ZipFile(file) as archive, zipfile.ZipFile(result, "w") as copy:
            for name in archive.namelist():
                content = archive.read(name)
                copy.writestr(name, data.draw(damaged(content)) if name == "x.npy" else content)
        file.write_bytes(result.getvalue())
    else:
        file.write_bytes(data.draw(damaged(complete)))
    try:
        with little_memory():
            attempt(read)
    finally:
        file.write_bytes(complete)
