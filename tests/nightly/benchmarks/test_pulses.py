"""The benchmark of pulses: rows, files, what is wrong or refused, and packages that agree."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import pulses
from benchmarks.dynamics import error_of
from benchmarks.peers.supergrad import Gate as Supergrad
from benchmarks.pulses import (
    REFERENCE,
    DrivenChain,
    Own,
    OwnIntegrator,
    Parameters,
    PulsedGates,
    PulsesCase,
    chain_of,
    create,
)  # fmt: skip
from benchmarks.runner import Call
from ketscale import cli

SMALL = PulsesCase("pulses", 2, 2)
MODULES = {
    "supergrad": "supergrad",
    "qutip": "qutip",
    "dynamiqs": "dynamiqs",
    "qiskit-dynamics": "qiskit_dynamics",
}


def relative(found: tuple[Any, Any], expected: tuple[Any, Any]) -> float:
    """The error of the gradient."""
    return error_of(found[1:], expected[1:])


def test_a_whole_benchmark(tmp_path: Path, capsys: Any) -> None:
    files = [tmp_path / f"bench.{kind}" for kind in ("json", "md")]
    options = [str(part) for pair in zip(("--json", "--markdown"), files, strict=True) for part in pair]
    names = "interaction4-150,interaction4-400,trotter2-5000,qutip"
    arguments = f"--problem pulses --qubits 2 --simulators {names} --repeats 5"
    assert cli.main(["bench", "dynamics", *arguments.split(), *options]) == 0
    rows = {row["simulator"]: row for row in json.loads(files[0].read_text())["rows"]}
    assert list(rows) == names.split(",")
    assert all(row["status"] == "timed" and row["median_s"] > 0 for row in rows.values())
    errors = [rows[name]["error"] for name in ("interaction4-400", "interaction4-150", "trotter2-5000")]
    assert 0 < errors[0] < 0.1 * errors[1] < errors[2] < 1e-4
    assert (
        rows["qutip"]["beside"] in (None, "interaction4-400") and rows["interaction4-400"]["beside"] is None
    )
    assert [row["computes"] for row in rows.values()] == ["value and gradient"] * 3 + ["value"]
    assert rows["trotter2-5000"]["peak_rss_bytes"] > 2**20
    table = files[1].read_text()
    assert "| pulses | 2 | 2 | interaction4-150 | " in table and "| value and gradient | 150 |" in table
    assert "pulses 2q d2: interaction4" in capsys.readouterr().out


@pytest.mark.parametrize("levels", [2, 3])
def test_the_reference_is_converged(levels: int) -> None:
    chain = chain_of(SMALL._replace(levels=levels))
    found, expected = (Own(own).prepare(chain)() for own in (REFERENCE, OwnIntegrator("magnus6", 900)))
    assert found[0] == pytest.approx(expected[0], abs=1e-9)
    assert relative(found, expected) < 2e-7


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("name", MODULES)
def test_other_packages_find_the_same(name: str, levels: int) -> None:
    pytest.importorskip(MODULES[name])
    chain = chain_of(SMALL._replace(levels=levels))
    found, expected = create(name).prepare(chain)(), Own(REFERENCE).prepare(chain)()
    assert found[0] == pytest.approx(expected[0], abs=1e-6)
    if found[1] is not None:
        assert relative(found, expected) < 1e-4


# --- SuperGrad ---


def published(qubits: int) -> DrivenChain:
    """SuperGrad's own chain with its random spread, and its own start."""
    graph = pytest.importorskip(
        "supergrad.scgraph.graph_mpc_fluxonium_1d", reason="supergrad is not installed"
    )
    made = graph.MPCFluxonium1D(qubits, periodic=False, seed=42)
    made.create_single_qubit_pulse(range(qubits), [50.0] * qubits, True)
    nodes = [made.nodes[name] for name in made.sorted_nodes]
    edges = [made.edges[edge] for edge in made.sorted_edges]

    def numbers(values: list[Any]) -> torch.Tensor:
        return torch.tensor([float(value) for value in values], dtype=torch.float64)

    pulses = [
        numbers([node["pulsesq"][name] for node in nodes]) for name in ("amp", "omega_d", "phase", "length")
    ]
    energies = [
        numbers([node[name] * node["variance"][name] for node in nodes]) / (2 * math.pi)
        for name in ("ec", "ej", "el")
    ]
    couplings = [
        numbers([edge[f"{name}_coupling"]["strength"] for edge in edges]) / (2 * math.pi)
        for name in ("capacitive", "inductive")
    ]
    return DrivenChain(
        2, Parameters(*pulses, *energies, numbers([node["phiext"] for node in nodes]), *couplings)
    )


FLUX = [name == "flux" for name in Parameters._fields]


def by_flux(chain: DrivenChain) -> Any:
    """Which entries of a gradient are by fluxes."""
    return np.repeat(FLUX, [len(each) for each in chain.parameters])


@pytest.mark.parametrize("qubits", [2, 3, 4])
def test_supergrads_second_order_is_ours(qubits: int) -> None:
    """At the settings of its benchmark, whose gradient by the flux is wrong (see below): without them, all of it."""
    chain = published(qubits)
    ours = Own(OwnIntegrator("published2", 4999)).prepare(chain)()
    for diagonal in (True, False):
        theirs = Supergrad(diagonal=diagonal).prepare(chain)()
        assert theirs[0] == pytest.approx(ours[0], abs=1e-6)
        compared = ~by_flux(chain) if diagonal else slice(None)
        np.testing.assert_allclose(theirs[1][compared], ours[1][compared], rtol=0, atol=1e-6)


def test_supergrads_first_order_is_ours() -> None:
    """By JAX's own differentiation; its adjoint takes steps back with terms in the same order, which are no inverses."""
    chain = published(2)
    ours = Own(OwnIntegrator("published1", 4999)).prepare(chain)()
    theirs, adjoint = (
        Supergrad(name, order=1, diagonal=False).prepare(chain)() for name in ("supergrad-tad", "supergrad")
    )
    assert theirs[0] == pytest.approx(ours[0], abs=1e-6)
    np.testing.assert_allclose(theirs[1], ours[1], rtol=0, atol=1e-6)
    assert np.abs(adjoint[1] - ours[1]).max() > 1e-3


def test_supergrads_first_order_ends_at_our_value() -> None:
    """Its error of 4e-3 is of order 1: what extrapolation from twice the steps leaves is of order 2."""
    chain = published(2)
    exact, _ = Own(REFERENCE).prepare(chain)()
    # Points in time, one more than steps.
    few, some, many = (
        Supergrad(steps=points, order=1).prepare(chain)()[0] - exact for points in (2501, 5001, 10001)
    )
    assert 1e-3 < abs(many) < abs(some) < abs(few)
    assert (2 * some - few) / (2 * many - some) == pytest.approx(4, abs=0.3)


def test_supergrads_gradient_by_the_flux_is_wrong_where_it_diagonalises_terms() -> None:
    chain = published(2)
    right, published_setting = (
        Parameters(
            *np.split(
                Supergrad(steps=1000, order=4, diagonal=diagonal).prepare(chain)()[1],
                [2 * k for k in range(1, 9)] + [17],
            )
        )
        for diagonal in (False, True)
    )
    for name, one, other in zip(Parameters._fields, right, published_setting, strict=True):
        assert np.allclose(one, other, rtol=0, atol=1e-6) == (name != "flux")


def test_supergrads_gradient_by_the_length_is_off_by_an_error_of_its_steps() -> None:
    """It is off its own finite differences by 1.3e-5 of the gradient at 500 steps, and ours is not."""
    pytest.importorskip("supergrad")
    chain = chain_of(SMALL)
    places = np.repeat([name == "length" for name in Parameters._fields], list(map(len, chain.parameters)))

    def longer(by: float) -> DrivenChain:
        return DrivenChain(2, chain.parameters._replace(length=chain.parameters.length + by))

    off = []
    for simulator in (Supergrad(steps=500), Own(OwnIntegrator("published2", 500))):
        values = {by: simulator.prepare(longer(by))()[0] for by in (-2e-3, -1e-3, 1e-3, 2e-3)}
        slope = (8 * (values[1e-3] - values[-1e-3]) - (values[2e-3] - values[-2e-3])) / 12e-3
        off.append(abs(simulator.prepare(chain)()[1][places].sum() - slope) / slope)
    assert 1e-5 < off[0] < 2e-5
    assert off[1] < 1e-9


# --- what is wrong, missing or refused ---


class Off:
    """150 steps with a relative error."""

    steps: int | None = 150

    def __init__(self, error: float) -> None:
        self.error = error

    def prepare(self, chain: DrivenChain) -> Call:
        ours = Own(OwnIntegrator("interaction4", 150)).prepare(chain)
        return lambda: tuple((1 + self.error) * part for part in ours())


@pytest.mark.parametrize(
    "error, budget, status",
    [
        (1e-2, 60, "parity failed"),
        (float("nan"), 60, "parity failed"),
        (0, 0, "over budget"),
        (0, 60, "timed"),
    ],
)
def test_what_is_wrong_or_slow_is_not_timed(
    error: float, budget: float, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulses, "create", lambda name: Off(error))
    asked = {"qubits": (2,), "simulators": ("interaction4-150",), "budget": float(budget), "repeats": 5}
    (row,) = PulsedGates(**asked).run()["rows"]
    assert row["status"] == status
    assert (row["median_s"] is None) == (status != "timed")
