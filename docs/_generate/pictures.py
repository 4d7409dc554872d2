"""The drawn pictures of the documentation. `python -m docs._generate.pictures` writes them to docs/images.

Numbers are read from the CSV files of the measurements, and circuits from `fused` itself.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from docs._generate.drawing import Drawing
from docs._generate.measured import DOCS, read

import ketscale
from ketscale.engines.circuits.ansaetze import vqc_ansatz
from ketscale.engines.circuits.circuit import pauli_words
from ketscale.engines.circuits.fused.program import Angle, Rotation, Word, reduce

SIMULATORS = (
    "fused-jax",
    "fused",
    "from_qnode",
    "tensorcircuit",
    "default.qubit-jit",
    "kronecker",
    "qulacs",
    "pyqtorch",
    "default.qubit",
    "lightning.qubit-vjp",
)


def speed() -> Drawing:
    """Milliseconds of a call under each simulator, with the mode in which it is used."""
    cells = {"4 x 64": "4 qubits, 64 samples", "8 x 128": "8 qubits, 128 samples"}
    rows = [row for row in read("2026-11-peers.csv") if row["layers"] == "3"]
    drawing = Drawing(860, 584, "Time of a call, value and gradient, under each simulator")
    drawing.text(24, 32, "Value and gradient of a batch of small circuits", size=17, bold=True)
    drawing.text(
        24,
        54,
        "milliseconds a call, logarithmic axis; Intel Xeon, two threads, commit 14d4689787",
        "soft",
        13,
    )
    left, right, least, most = 400, 780, 0.01, 10000

    def x(value: float) -> float:
        return left + (right - left) * math.log10(value / least) / math.log10(most / least)

    for power in range(-2, 5):
        drawing.line(x(10.0**power), 70, x(10.0**power), 554)
        drawing.text(x(10.0**power), 572, f"{10.0**power:,g}", "soft", 12, "middle")
    y = 80
    for cell, title in cells.items():
        drawing.text(24, y + 14, title, size=13, bold=True)
        y += 22
        for name in SIMULATORS:
            (row,) = [row for row in rows if row["qubits x batch"] == cell and row["simulator"] == name]
            own, value = name.startswith(("fused", "from_qnode")), float(row["a call, ms"])
            kind, half = ("first" if own else "second"), float(row["interquartile range, ms"] or 0) / 2
            drawing.text(left - 10, y + 13, f"{name} ({row['mode']})", size=12, at="end", bold=own)
            drawing.line(x(value - half), y + 9, x(value + half), y + 9, kind)
            drawing.circle(x(value), y + 9, 4.5, kind)
            drawing.text(x(value + half) + 10, y + 14, f"{value:.3g}", size=12)
            y += 21
        y += 10
    return drawing


class Pair(NamedTuple):
    """What a second worker gains: ms of a step on one core, the speedup with its interval, the workers, what is trained."""

    step: float
    speedup: tuple[float, float, float]
    workers: str
    what: str


# Pairs of the readers: the step, the speedup, the workers and what is trained.
READERS = (
    ("eeg", "step", "threads", "threads", "EEG"),
    ("eeg", "step", "ranks-timing", "DDP (Gloo)", "EEG"),
    ("transformer", "epoch-fused", "ranks-fused", "MPI", "sentences"),
    ("transformer", "epoch-closed-form-shift", "ranks-closed-form-shift", "MPI", "sentences, shift rule"),
    ("gate", "step-matched-6", "ranks-matched", "MPI", "gate"),
    ("gate", "step-device", "ranks-device", "MPI", "device too"),
    ("gate", "step-published-5000-6", "ranks-published-5000", "MPI", "gate, 5,000 steps"),
)


def pairs() -> Iterator[Pair]:
    """The speedups of two workers that the default study and the readers have."""
    names = {"two MPI ranks": "MPI", "two DDP ranks (Gloo)": "DDP (Gloo)", "two threads": "threads"}
    for row in read("2026-11-default-study-workers.csv"):
        label, *cells = row.items()
        for head, cell in cells:
            step, unit = re.search(r"([\d.]+) (µs|ms)", head).groups()  # type: ignore[union-attr]
            value, low, high = map(float, re.findall(r"[\d.]+", cell)[:3])
            scale = 1e-3 if unit == "µs" else 1.0
            yield Pair(float(step) * scale, (value, low, high), names[label[1]], "")
    found = {(row["reader"], row["number"]): row for row in read("2026-11-readers.csv")}
    for reader, step, speedup, workers, what in READERS:
        own = found.get((reader, speedup))
        if own and own["low"]:
            ends = float(own["value"]), float(own["low"]), float(own["high"])
            yield Pair(float(found[reader, step]["value"]), ends, workers, what)


def workers() -> Drawing:
    """The speedup of two workers over the time of a step."""
    drawing = Drawing(760, 420, "Speedup of two workers over the time of a step on one core")
    drawing.text(24, 32, "From how much work in a step are two workers faster?", size=17, bold=True)
    drawing.text(24, 54, "speedup of two workers over one core; typical seeds, 95 % intervals", "soft", 13)
    left, right, top, bottom, least, most = 70, 720, 80, 360, 0.1, 1000.0

    def x(value: float) -> float:
        return left + (right - left) * math.log10(value / least) / math.log10(most / least)

    def y(value: float) -> float:
        return bottom - (bottom - top) * min(max(value - 0.25, 0.0), 2.0) / 2.0

    for power in range(-1, 4):
        drawing.line(x(10.0**power), top, x(10.0**power), bottom)
        drawing.text(x(10.0**power), bottom + 20, f"{10.0**power:,g}", "soft", 12, "middle")
    for value in (0.5, 1.0, 1.5, 2.0):
        drawing.line(left, y(value), right, y(value), "soft" if value == 1 else "rule")
        drawing.text(left - 10, y(value) + 4, f"{value:g}x", "soft", 12, "end")
    drawing.text(
        (left + right) / 2,
        bottom + 44,
        "milliseconds of a step on one core, logarithmic axis",
        "soft",
        12,
        "middle",
    )
    kinds = {"MPI": "first", "DDP (Gloo)": "second", "threads": "third"}
    for pair in pairs():
        value, low, high = pair.speedup
        kind = kinds[pair.workers]
        # Beside each other, where steps are equal.
        at = x(pair.step) + 5 * (list(kinds).index(pair.workers) - 1)
        drawing.line(at, y(low), at, y(high), kind)
        drawing.circle(at, y(value), 4.5, kind)
        # Beside its dot, or above it where the picture ends.
        if at > right - 90:
            drawing.text(at, y(value) - 10, pair.what, "soft", 11, "middle")
        else:
            drawing.text(at + 8, y(value) + 4, pair.what, "soft", 11)
    for number, (name, kind) in enumerate(kinds.items()):
        drawing.circle(left + 16 + 170 * number, top - 8, 4.5, kind)
        drawing.text(
            left + 26 + 170 * number,
            top - 4,
            f"two {name}" if name == "threads" else f"two ranks, {name}",
            size=12,
        )
    return drawing


def _letters(word: Rotation | Word, qubits: int) -> str:
    bits = range(qubits - 1, -1, -1)
    return "".join("IXZY"[(word.x >> bit & 1) + 2 * (word.z >> bit & 1)] for bit in bits)


def _angle(angle: Angle) -> str:
    sign = "-" if angle.factor < 0 else ""
    return f"{sign}{'x' if angle.kind == 'input' else 'w'}{angle.index}"


def frame() -> Drawing:
    """A circuit, and what is left of it when its CNOTs are tracked instead of applied."""
    qubits, layers = 3, 2
    circuit = vqc_ansatz(qubits, layers)
    program = reduce(circuit, pauli_words(qubits))
    assert program.words is not None
    drawing = Drawing(760, 330, "A circuit as rotations about Pauli words")
    drawing.text(24, 30, "As written", bold=True)
    top, left, gap = 60, 50, 62
    for wire in range(qubits):
        drawing.text(left - 26, top + 5 + 38 * wire, f"q{wire}", "soft", 13)
        drawing.line(left, top + 38 * wire, 736, top + 38 * wire)
    x, alone = left + 36.0, set[int]()
    for gate in circuit.gates:
        if gate.name == "CNOT" or gate.wires[0] in alone:
            x, alone = x + gap, set()
        if gate.name == "CNOT":
            control, target = (top + 38 * wire for wire in gate.wires)
            drawing.line(x, control, x, target, "second")
            drawing.circle(x, control, 4, "second")
            drawing.circle(x, target, 9, "second", filled=False)
            drawing.line(x - 9, target, x + 9, target, "second")
            drawing.line(x, target - 9, x, target + 9, "second")
            alone = {0, 1, 2}
            continue
        (wire,), (column,) = gate.wires, gate.columns
        alone.add(wire)
        kind = "x" if column.kind == "input" else "w"
        drawing.box(x - 18, top - 13 + 38 * wire, 36, 26, "pale", 3)
        drawing.text(x, top + 4 + 38 * wire, f"Y({kind}{column.index})", size=11, at="middle")
    drawing.text(24, 196, "As fused runs it: rotations about Pauli words; no CNOT is left", bold=True)
    x = 24.0
    for rotation in program.rotations:
        assert isinstance(rotation, Rotation)
        long = _letters(rotation, qubits).count("I") == 0
        drawing.box(x, 212, 74, 44, "pale", 3)
        drawing.text(
            x + 37, 231, _letters(rotation, qubits), "second" if long else "ink", 14, "middle", bold=True
        )
        drawing.text(x + 37, 248, _angle(rotation.angle), "soft", 12, "middle")
        x += 79
    measured = ", ".join(_letters(word, qubits) for word in program.words)
    asked = ", ".join(pauli_words(qubits))
    drawing.text(24, 286, f"Measured: {asked} of the circuit are {measured} of what is left.", size=13)
    drawing.text(24, 310, "Every word has an odd number of Y, so the amplitudes stay real.", size=13)
    return drawing


def lanes() -> Drawing:
    """How samples are laid out in vectors."""
    drawing = Drawing(760, 330, "Samples in the lanes of vectors")
    drawing.text(24, 30, "A tile: the states of 16 samples (single precision, AVX-512)", bold=True)
    left, top, cell, samples, amplitudes = 150, 74, 24, 16, 8
    drawing.text(left, 60, "sample 0, 1, 2, ... 15: one lane each", "soft", 12)
    for row in range(amplitudes):
        y = top + row * (cell + 3)
        drawing.text(left - 12, y + 17, f"amplitude {row:03b}", "soft", 12, "end")
        for column in range(samples):
            kind = "first" if row in (1, 5) else "pale"
            drawing.box(left + column * cell, y, cell - 2, cell, kind)
    x = left + samples * cell + 22
    drawing.text(x, top + 17, "one row = one vector", size=13)
    drawing.text(x, top + 36, "= one register", size=13)
    drawing.text(x, top + 84, "A rotation with X on", size=13)
    drawing.text(x, top + 103, "one wire combines pairs", size=13)
    drawing.text(x, top + 122, "of rows (blue), for all", size=13)
    drawing.text(x, top + 141, "16 samples at once,", size=13)
    drawing.text(x, top + 160, "without a shuffle.", size=13)
    drawing.text(
        24,
        314,
        "The tile stays in the cache of one core. A thread computes one tile after the other.",
        size=13,
    )
    return drawing


def adjoint() -> Drawing:
    """The adjoint method: one sweep forward, one back."""
    drawing = Drawing(760, 270, "The adjoint method")
    steps, left, gap = 5, 104, 106
    drawing.text(24, 30, "Forward: one state", bold=True)
    drawing.text(24, 128, "Backward: two states, every rotation undone on both", bold=True)
    for k in range(steps + 1):
        x = left + k * gap
        for y, name, kind in ((68, "psi", "first"), (168, "psi", "first"), (206, "adj", "second")):
            drawing.circle(x, y, 17, "pale")
            drawing.text(x, y + 4, name, kind, 12, "middle", bold=True)
        if k < steps:
            drawing.line(x + 20, 68, x + gap - 20, 68, "first", arrow=True)
            drawing.text(x + gap / 2, 60, f"R{k + 1}", "soft", 12, "middle")
            for y, kind in ((168, "first"), (206, "second")):
                drawing.line(x + gap - 20, y, x + 20, y, kind, arrow=True)
            drawing.text(x + gap / 2, 191, f"dw{k + 1}", "soft", 12, "middle")
    drawing.text(24, 72, "|0...0>", "soft", 12)
    drawing.text(left + steps * gap + 24, 190, "observables", "soft", 12)
    drawing.text(
        24,
        252,
        "Nothing is stored on the way: after the value, psi is the only state that the gradient needs.",
        size=13,
    )
    return drawing


def timeline() -> Drawing:
    """The parts of a run that are timed."""
    drawing = Drawing(760, 190, "What is timed in a run")
    drawing.text(24, 30, "One run", bold=True)
    parts = (
        ("start-up", 90, "other"),
        ("data", 60, "other"),
        ("first step", 100, "second"),
        ("warm-up", 44, "other"),
    )
    x, y = 24.0, 56
    for name, width, kind in parts:
        drawing.box(x, y, width - 3, 34, kind, 2)
        drawing.text(x + width / 2 - 1, y + 52, name, "soft", 12, "middle")
        x += width
    for step in range(20):
        drawing.box(x, y, 15, 34, "third" if step % 7 == 3 else "first", 2)
        x += 17
    drawing.text(x - 170, y + 52, "steady steps: their median is the step time", "first", 12, "middle")
    drawing.box(x + 3, y, 68, 34, "other", 2)
    drawing.text(x + 37, y + 52, "validation", "soft", 12, "middle")
    drawing.box(24, 138, 12, 12, "third")
    drawing.text(
        42,
        149,
        "sampled steps: the device is synchronised between their parts; excluded from the median",
        size=13,
    )
    drawing.box(24, 160, 12, 12, "second")
    drawing.text(42, 171, "compiles; reported by itself", size=13)
    return drawing


def badge(name: str, value: str) -> Drawing:
    """A name and a value side by side, for the head of README."""
    left, right = 8 * len(name) + 4, 8 * len(value) + 4
    drawing = Drawing(left + right, 20, f"{name}: {value}")
    for x, width, text, kind in ((0, left, name, "soft"), (left, right, value, "first")):
        drawing.box(x, 0, width, 20, kind)
        drawing.text(x + width / 2, 14, text, "paper", 12, "middle")
    return drawing


LICENSE = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]["license"]
PICTURES: dict[str, Callable[[], Drawing]] = {
    "speed": speed,
    "workers": workers,
    "fused-frame": frame,
    "fused-lanes": lanes,
    "fused-adjoint": adjoint,
    "run-timeline": timeline,
    "version": partial(badge, "version", ketscale.__version__),
    "license": partial(badge, "license", LICENSE),
}


def files() -> dict[str, str]:
    """What docs/images/NAME.svg has to have."""
    return {f"{name}.svg": draw().svg for name, draw in PICTURES.items()}


if __name__ == "__main__":
    for name, text in files().items():
        (DOCS / "images" / name).write_text(text)
