"""Files as users bring them, from `ketscale init` on: each is read as it must be, or refused in a line or two that name the place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from ketscale.cli import main
from ketscale.problems.images import features
from ketscale.problems.registry import read_config
from ketscale.problems.splits import SPLITS

N = 40
X = np.random.default_rng(0).normal(3, 2, (N, 3)).round(3)
KINDS = np.array(["cat", "dog"] * 20)
ROWS = np.arange(N)
# Each class has 12 rows, 4 and 4.
PARTS = np.repeat(["train", "val", "test"], [24, 8, 8]).astype("U10")
GREY = np.random.default_rng(0).integers(0, 256, (N, 6, 5), np.uint8)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Right(NamedTuple):
    """What must be read; features are not yet scaled, parts may be drawn, and rows of one number stay together."""

    features: Any = X
    targets: Any = KINDS
    parts: Any = None
    said: str = ""
    together: Any = ROWS


Case = tuple[Callable[[], str], Right | str]


def table(*columns: Any, names: str = "a,b,c,kind", separator: str = ",") -> str:
    """The text of a CSV file; without columns those of X and KINDS."""
    arguments = columns or (*X.T, KINDS)
    lines = [names.replace(",", separator)]
    lines += [separator.join(map(str, row)) for row in zip(*arguments, strict=True)]
    return "\n".join(lines) + "\n"


def saved(content: str | bytes, encoding: str = "utf-8", name: str = "mine.csv") -> Callable[[], str]:
    """Writes a file; returns what `init` gets."""

    def write() -> str:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return name

    return write


def csv(*columns: Any, **how: str) -> Callable[[], str]:
    return saved(table(*columns, **how))


def npz(**arrays: Any) -> Callable[[], str]:
    def write() -> str:
        np.savez("mine.npz", **{"x": X, "y": KINDS, **arrays})
        return "mine.npz"

    return write


def commas(values: Any) -> list[str]:
    return [f'"{value}"'.replace(".", ",") for value in values]


PAIRS = np.stack([ROWS // 4, ROWS // 4], axis=1)

TABLES: dict[str, Case] = {
    "commas": (csv(), Right()),
    "semicolons": (csv(separator=";"), Right()),
    "quotes": (csv(*X.T, [f'"a {kind}, ""small"""' for kind in KINDS]), Right(targets=[f'a {kind}, "small"' for kind in KINDS])),
    "unicode": (csv(*X.T, ["猫", "Möwe"] * 20, names="größe,b,长,种类"), Right(targets=["猫", "Möwe"] * 20)),
    "equal rows": (csv(*PAIRS.T, ROWS // 4 % 2, names="a,b,kind"), Right(PAIRS, [str(row // 4 % 2) for row in ROWS], together=ROWS // 4)),
    "parts": (csv(*X.T, PARTS, KINDS, names="a,b,c,split,kind"), Right(parts=PARTS)),
    "val and validation": (
        csv(*X.T, np.where(ROWS % 3, PARTS, np.char.replace(PARTS, "val", "validation")), KINDS, names="a,b,c,split,kind"),
        Right(parts=PARTS),
    ),
    "equal rows in training and test": (
        csv(*X[ROWS % 32].T, PARTS, KINDS, names="a,b,c,split,kind"),
        Right(X[ROWS % 32], parts=PARTS, said="mine: 8 samples of validation and test have something in common with a part before"),
    ),
    "numbers to predict": (csv(*X.T, names="a,b,price"), Right(X[:, :2], X[:, 2])),
    "decimal commas": (csv(*map(commas, X.T), KINDS, separator=";"), "mine.csv: has no column that is a feature: a (numbers with a decimal comma"),
    "a gap by the median": (saved(table().replace(str(X[5, 1]), "NaN")), Right(features=np.where(X[5, 1] == X, np.nan, X))),
    "a word for a gap": (saved(table().replace(str(X[5, 1]), "none of these")), "mine.csv: row 6, column b"),
    "a class without a name": (saved(table().replace("cat", "", 1)), "workloads.mine: mine.csv: row 1, column kind"),
    "duplicate columns": (csv(names="a,b,a,kind"), "mine.csv: two columns are called a; rename one"),
    "one number to predict": (csv(*X.T, [7.5] * N, names="a,b,c,price"), "workloads.mine: target price: has one value in all training samples"),
    "a label in two ways": (csv(*X.T, ["Mo\u0308we", "M\u00f6we"] * 20), "workloads.mine: mine.csv: kind"),
    "target or groups": (csv(names="a,b,c,animal"), "mine.csv: the last column, animal, may be what is to be predicted, or say which rows"),
}  # fmt: skip
ARRAYS: dict[str, Case] = {
    "float labels": (npz(y=np.tile([1.0, 2.0], 20)), Right(targets=["1", "2"] * 20)),
    "NaN": (npz(x=np.where(ROWS[:, None] == 3, np.nan, X)), "workloads.mine: mine.npz: x"),
    "other names": (lambda: (np.savez("mine.npz", X=X, labels=KINDS), "mine.npz")[1], "mine.npz: is no data that any kind of workload reads as it is (it has X (40, 3), l"),
    "one-hot classes": (lambda: (np.savez("mine.npz", x=X, labels=np.eye(2)[ROWS % 2]), "mine.npz")[1], "mine.npz: labels: holds one-hot classes; save their numbers, labels.argmax(1)"),
    "images of 16 bits": (lambda: (np.savez("mine.npz", images=GREY.astype(np.uint16) * 257, y=KINDS), "mine.npz")[1], "workloads.mine: mine.npz: images"),
    "images from 0.0 to 255.0": (lambda: (np.savez("mine.npz", images=GREY * 1.0, y=KINDS), "mine.npz")[1], "workloads.mine: mine.npz: images"),
}  # fmt: skip


def brought(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said of data by `init` and `prepare`; the config is mine.yaml."""
    if main(["init", *arguments, "--out", "mine.yaml"]) == 0:
        capsys.readouterr()
        main(["prepare", "mine", "--config", "mine.yaml"])
    # Without what shows progress.
    message = [line for line in capsys.readouterr().err.splitlines() if "step/s" not in line and line]
    assert len(message) <= 2
    return "\n".join(message).removeprefix("ketscale: ")


@pytest.mark.parametrize(
    "case", [*TABLES.values(), *ARRAYS.values()], ids=[*TABLES, *(f"array of {name}" for name in ARRAYS)]
)
def test_rows(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    make, expected = case
    message = brought([make()], capsys)
    if isinstance(expected, str):
        assert message.startswith(expected)
        assert not list(Path().glob("results*/features/mine/features.json"))
        return
    assert message.startswith(expected.said) and bool(message) == bool(expected.said)
    config = read_config(Path("mine.yaml"))
    settings = config.settings(config.runs[0])
    family = settings.family
    assert family.read is not None
    data = family.read(settings, Path(config.results, "features/mine/features.json")).content
    parts = np.full(N, "?" * 10)
    for name in SPLITS:
        parts[data.splits[name]] = name
    parts = np.char.replace(parts, "validation", "val")
    assert sum(len(rows) for rows in data.splits.values()) == N and "?" not in "".join(parts)
    if expected.parts is not None:
        assert parts.tolist() == list(expected.parts)
    else:
        assert len(set(zip(expected.together, parts, strict=True))) == len(set(expected.together))
    values = expected.features.astype(float)
    values = np.where(np.isnan(values), np.nanmedian(values[parts == "train"], 0), values)
    train = values[parts == "train"]
    deviation = train.std(0)
    scaled = (values - train.mean(0)) / np.where(deviation, deviation, 1)
    np.testing.assert_allclose(data.inputs, scaled, rtol=0, atol=1e-5)
    if np.asarray(expected.targets).dtype.kind == "f":
        assert np.array_equal(data.targets, np.asarray(expected.targets)[:, None])
    else:
        assert [data.names[target] for target in data.targets] == list(expected.targets)


def pictures(add: Callable[[Path], Any]) -> Callable[[], str]:
    """Two classes of five files each; `add` gets the folder of the first, day."""

    def write() -> str:
        for name, level in (("night", 20), ("day", 200)):
            Path("mine", name).mkdir(parents=True)
            for number in range(5):
                Image.new("RGB", (12, 9), (level, level, level + number)).save(f"mine/{name}/{number}.png")
        add(Path("mine/day"))
        return "mine"

    return write


def of(mode: str, colour: Any, name: str = "a.png", **how: Any) -> Callable[[], str]:
    """A folder with one more picture, of one colour."""
    return pictures(lambda path: Image.new(mode, (8, 6), colour).save(path / name, **how))


def rotated(path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise, which brings the left to the top
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255
    Image.fromarray(pixels).save(path / "a.jpg", exif=exif, quality=100)


def half(top: int, bottom: int) -> np.ndarray:
    return np.repeat([top, bottom], 16)[:, None, None]


# The pixels of the picture a.*, (32, 32, 3), or what is said of it.
FOLDERS: dict[str, tuple[Callable[[], str], Any]] = {
    "a palette": (pictures(lambda path: Image.new("RGB", (8, 8), (200, 10, 20)).quantize(4).save(path / "a.gif")), [200, 10, 20]),
    "an alpha channel that hides nothing": (of("RGBA", (1, 2, 3, 255)), [1, 2, 3]),
    "EXIF rotation": (pictures(rotated), half(255, 0)),
    "16 bits": (of("I;16", 40000), "workloads.mine: mine/day/a.png"),
    "transparent": (of("RGBA", (1, 2, 3, 4)), "workloads.mine: mine/day/a.png"),
    "no image": (pictures(lambda path: (path / "a.heic").write_text("")), "folder: mine/day/a.heic is not an image (.bmp, .gif"),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLDERS.values(), ids=FOLDERS)
def test_folders_of_images(
    case: tuple[Callable[[], str], Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []
    monkeypatch.setattr(features, "pretrain", lambda *_, **__: None)
    monkeypatch.setattr(features, "compute", lambda workload, images, *_: read.append(images))
    make, expected = case
    message = brought([make()], capsys)
    if isinstance(expected, str):
        assert message.startswith(expected) and not read
        return
    ((images,), names) = read, ["day"] * 6 + ["night"] * 5
    assert [images.names[label] for label in images.targets] == names
    assert images.values.shape == (11, 32, 32, 3)
    pixels = np.broadcast_to(expected, (32, 32, 3)).astype(int)
    # Resizing mixes the halves at their border; JPEG rounds.
    assert np.abs(images.values[5].astype(int) - pixels)[[*range(14), *range(18, 32)]].max() <= 3
    assert (images.values[0, 0, 0] == 200).all() and images.values[10, 9, 9].tolist() == [20, 20, 24]
