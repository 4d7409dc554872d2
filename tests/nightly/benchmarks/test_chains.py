"""The benchmark of chains: its rows, and that every simulator's states are those of SciPy's exponentials."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import expm

from benchmarks.chains import CHAINS, LARGEST_ERROR, ChainCase, evolved, system_of
from ketscale import cli


@pytest.mark.parametrize("chain", CHAINS)
def test_final_states_are_those_of_scipys_exponentials(chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import benchmarks.chains as module

    calls = []
    evolve = module.kd.evolve
    monkeypatch.setattr(
        module.kd, "evolve", lambda *given, **named: calls.append(given) or evolve(*given, **named)
    )
    result, _ = evolved(ChainCase(chain, "unitary", 2, 3), "exact", None)
    system, controls, length = calls[0]
    assert system is system_of(chain, 2) and length == CHAINS[chain][1]
    built = np.eye(4, dtype=complex)
    for row in controls.detach().numpy():
        driven = sum(u * term for u, term in zip(row, system.controls.values(), strict=True))
        built = expm(-1j * (system.hamiltonian() + driven) * length / 3) @ built
    np.testing.assert_allclose(result.numpy(), built, rtol=0, atol=1e-10)


def test_every_row_has_the_fewest_steps_or_nearly_for_its_error(tmp_path: Path) -> None:
    file = tmp_path / "chains.json"
    arguments = "--qubits 3 --kinds ket --chains rotating --segments 4 --threads 1 --repeats 5"
    assert cli.main(["bench", "chains", *arguments.split(), "--json", str(file)]) == 0
    exact, *others = json.loads(file.read_text())["rows"]
    assert exact["error"] == 0 and exact["steps_in_segment"] is None and exact["times"] is None
    case = ChainCase("rotating", "ket", 3, 4)
    for row in others:
        assert row["error"] <= LARGEST_ERROR and row["times"] == row["median_s"] / exact["median_s"]
        fewer = (
            evolved(case, row["simulator"], row["steps_in_segment"] // 2)[0] - evolved(case, "exact", None)[0]
        )
        assert float(fewer.norm(dim=0).max()) > LARGEST_ERROR
