"""Our optimiser is torch's: the same numbers step by step, without the two seconds of importing its compiler."""

import subprocess
import sys

import pytest
import torch

from ketscale.training.optimiser import Adam, Plateau


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_adam_is_torchs(dtype):
    torch.manual_seed(0)
    start = [torch.randn(7, 3, dtype=dtype), torch.randn(4, dtype=dtype)]
    ours = [torch.nn.Parameter(x.clone()) for x in start]
    theirs = [torch.nn.Parameter(x.clone()) for x in start]
    adam, reference = Adam(ours, 0.01, 0.1), torch.optim.Adam(theirs, lr=0.01, weight_decay=0.1)
    for _ in range(25):
        for parameters in (ours, theirs):
            for p in parameters:
                p.grad = 2 * p.detach() + 1
        adam.step()
        reference.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-6 if dtype == torch.float32 else 1e-14, atol=0)


def test_adam_goes_on_from_its_state():
    a, b = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    first, second = Adam([a], 0.1, 0.0), Adam([b], 0.5, 0.0)
    for _ in range(3):
        a.grad = a.detach().clone()
        first.step()
    with torch.no_grad():
        b.copy_(a)
    second.load_state_dict(first.state_dict())
    for optimiser, p in ((first, a), (second, b)):
        p.grad = torch.full((3,), 0.5)
        optimiser.step()
    assert torch.equal(a, b)


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_plateau_is_torchs(patience):
    losses = [1.0, 0.9, 0.95, 0.91, 0.89999, 0.92, 0.5, 0.6, 0.7, 0.6, 0.55, 0.51, 0.5, 0.4, 0.4]
    ours = Adam([torch.nn.Parameter(torch.ones(1))], 1.0, 0.0)
    theirs = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    plateau = Plateau(ours, 0.5, patience)
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, factor=0.5, patience=patience)
    for loss in losses:
        plateau.step(loss)
        reference.step(loss)
        assert ours.learning_rate == theirs.param_groups[0]["lr"]


def test_training_does_not_import_the_compiler():
    script = (
        "import sys, torch; from ketscale.training.loop import Trainer; from ketscale.training.optimiser import Adam; "
        "p = torch.nn.Parameter(torch.ones(2)); a = Adam([p], 0.1, 0.0); p.grad = p.detach(); a.step(); "
        "torch.nn.utils.clip_grad_norm_([p], 1.0); heavy = ('torch._dynamo', 'pennylane', 'qiskit', 'sklearn', "
        "'pandas', 'transformers', 'mpi4py'); print(*(m for m in heavy if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == "", done.stdout + done.stderr
