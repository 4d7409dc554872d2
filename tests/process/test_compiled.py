"""Compiled code and exported programs in other processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from ketscale import Circuit, Layer
from ketscale.engines.compiled import threads

LOAD = """
import sys, torch
from ketscale import Layer
program = torch.export.load(sys.argv[1]).module()
given, wanted = torch.load(sys.argv[2])
torch.testing.assert_close(program(given), wanted)
program(given).sum().backward()
assert all(p.grad.abs().sum() > 0 for p in program.parameters())
"""


@pytest.mark.nightly
def test_an_exported_program_computes_in_a_fresh_process_at_any_batch(tmp_path: Path) -> None:
    circuit = (
        Circuit(2).ry(0, "x0").rx(1, 0.3).rot(0, "w0", "w1", "x1").unitary([[1, 0], [0, 1j]], 1).cnot(0, 1)
    )
    model = nn.Sequential(nn.Linear(3, 2), Layer(circuit, [{"ZI": 0.5, "XY": 2.0}])).double()
    shapes, given = ({0: torch.export.Dim("batch", min=1)},), torch.rand(7, 3, dtype=torch.float64)
    torch.export.save(torch.export.export(model, (given[:4],), dynamic_shapes=shapes), tmp_path / "model.pt2")
    torch.save([given, model(given).detach()], tmp_path / "pair")
    subprocess.run([sys.executable, "-c", LOAD, tmp_path / "model.pt2", tmp_path / "pair"], check=True)


FORKED = """
import os, signal, warnings
import torch
from ketscale import dynamics as kd
from ketscale.engines.compiled import kernel

torch.set_num_threads(2)
kernel.WORK_PER_THREAD = 1
controls = torch.ones(100, 5, 2, dtype=torch.float64)
expected = kd.evolve(kd.transmon(), controls, 1.0)
child = os.fork()
if not child:
    signal.alarm(300)  # it would wait for ever
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        same = torch.equal(kd.evolve(kd.transmon(), controls, 1.0), expected)
    os._exit(0 if same and "forked from one that had threads" in str(found[0].message) else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(threads._load() is None, reason="torch has another pool")
def test_a_process_forked_from_one_with_threads_says_that_it_runs_on_one_thread() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True)
