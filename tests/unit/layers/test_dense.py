"""Dense layers as one operator: the numbers of the layers that it replaces, and only where it may."""

import pytest
import torch
from torch import nn

from ketscale.engines.compiled.library import Library
from ketscale.engines.randomness import keyed
from ketscale.layers import dense as module
from ketscale.layers.dense import Dense, _Dense, _free
from ketscale.layers.dropout import SampleDropout, name_dropouts

DTYPES = [torch.float32, torch.float64]


def layers(hidden=(32, 16), tanh=True, p=0.3, inputs=5, outputs=3):
    """[Linear, ReLU, SampleDropout] for each hidden width, Linear, and tanh or not."""
    result, width = [], inputs
    for size in hidden:
        result += [nn.Linear(width, size), nn.ReLU(), SampleDropout(p)]
        width = size
    return [*result, nn.Linear(width, outputs), *[nn.Tanh()] * tanh]


def two(dtype=torch.float64, **settings):
    """A `Dense`, and a `Sequential` of the same layers."""
    torch.manual_seed(0)
    dense = Dense(*layers(**settings)).to(dtype)
    name_dropouts(dense)
    return dense, nn.Sequential(*dense)


def results(model, x, samples, taken=None):
    """Outputs and gradients by inputs and parameters of a step; `taken` collects the names of autograd's nodes."""
    x = x.clone().requires_grad_()
    with keyed(7, 3, samples):
        result = model(x)
    if taken is not None:
        taken.append(result.grad_fn.name())
    weights = torch.linspace(0.1, 1, result.numel(), dtype=result.dtype).view(result.shape)
    return result.detach(), *torch.autograd.grad((result * weights).sum(), [x, *model.parameters()])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "settings",
    [{}, {"tanh": False}, {"hidden": ()}, {"hidden": (128, 32)}, {"p": 0.0}, {"outputs": 1}],
    ids=str,
)
@pytest.mark.parametrize("batch", [1, 19])
def test_it_has_the_numbers_of_its_layers(dtype, settings, batch):
    dense, plain = two(dtype, **settings)
    x, samples, steps = torch.randn(batch, 5, dtype=dtype), torch.arange(batch) * 3, []
    mine, expected = results(dense, x, samples, steps), results(plain, x, samples)
    assert steps == ["_DenseBackward"]
    for a, b in zip(mine, expected, strict=True):
        rtol, atol = (1e-5, 1e-6) if dtype == torch.float32 else (1e-12, 1e-14)
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_no_bit(dtype, monkeypatch):
    """However the work is split: by rows, and by columns of the weights' gradients."""
    dense, _ = two(dtype, hidden=(128, 32), inputs=70)
    x, samples, result, split = torch.randn(100, 70, dtype=dtype), torch.arange(100), [], []
    monkeypatch.setattr(module, "WORK_PER_THREAD", 1)
    on_threads = Library.on_threads

    def noted(self, part, address, threads):
        split.append((part, threads))
        on_threads(self, part, address, threads)

    monkeypatch.setattr(Library, "on_threads", noted)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            _free.clear()
            result.append(results(dense, x, samples))
    finally:
        torch.set_num_threads(before)
        _free.clear()
    assert {(part, 2) for part in ("write_forward", "write_back", "write_gradients")} <= {*split}
    for other in result[1:]:
        assert all(torch.equal(a, b) for a, b in zip(result[0], other, strict=True))


def test_a_nan_is_passed_on():
    dense, _ = two(hidden=(16,), p=0.0)
    x = torch.randn(4, 5, dtype=torch.float64)
    x[2, 1] = torch.nan
    assert results(dense, x, torch.arange(4))[0].isnan().all(1).tolist() == [False, False, True, False]


def test_members_under_vmap_have_the_numbers_that_they_have_alone():
    """With weights, masks and inputs of their own."""
    members = [Dense(*layers()).double() for _ in range(3)]
    for member in members:
        name_dropouts(member)
    x, samples = torch.randn(3, 8, 5, dtype=torch.float64), torch.randint(0, 99, (3, 8))
    names = [name for name, _ in members[0].named_parameters()]
    own = [
        torch.stack([dict(m.named_parameters())[name].detach() for m in members]).requires_grad_()
        for name in names
    ]

    def one(parameters, seed, ids, rows):
        with keyed(seed, 3, ids):
            return torch.func.functional_call(members[0], dict(zip(names, parameters, strict=True)), (rows,))

    result = torch.func.vmap(one)(own, torch.arange(3), samples, x)
    gradients = torch.autograd.grad(result.square().sum(), own)
    for index, member in enumerate(members):
        with keyed(index, 3, samples[index]):
            single = nn.Sequential(*member)(x[index])
        torch.testing.assert_close(result[index], single, rtol=1e-12, atol=1e-14)
        for mine, expected in zip(
            gradients, torch.autograd.grad(single.square().sum(), list(member.parameters())), strict=True
        ):
            torch.testing.assert_close(mine[index], expected, rtol=1e-12, atol=1e-14)


def test_a_graph_that_is_kept_gives_its_gradients_twice():
    dense, _ = two()
    with keyed(0, 0, torch.arange(4)):
        result = dense(torch.randn(4, 5, dtype=torch.float64))
    first, second = (
        torch.autograd.grad(result.sum(), list(dense.parameters()), retain_graph=True) for _ in "ab"
    )
    assert all(map(torch.equal, first, second))


class Doubled(nn.Linear):
    """A layer with arithmetic of its own."""

    def forward(self, input):
        return 2 * super().forward(input)


def changed(how):
    dense, _ = two()
    if how == "evaluation":
        dense.eval()
    elif how == "subclass":
        dense[0].__class__ = Doubled
    elif how == "hook":
        dense[3].register_forward_hook(lambda module, arguments, result: 2 * result)
    elif how == "width":
        dense[0], dense[3] = nn.Linear(5, 20).double(), nn.Linear(20, 16).double()
    elif how == "no bias":
        dense[0].bias = None
    elif how == "strided bias":
        gradient = torch.zeros(2 * len(dense[0].bias), dtype=torch.float64)
        dense[0].bias = nn.Parameter(gradient[::2].copy_(dense[0].bias.detach()))
    return dense


@pytest.mark.parametrize("how", ["evaluation", "subclass", "hook", "width", "no bias", "strided bias"])
def test_other_layers_are_called_one_by_one(how, monkeypatch):
    """With the numbers that they have as a `Sequential`."""
    monkeypatch.setattr(_Dense, "apply", lambda *arguments: pytest.fail("one operator"))
    dense = changed(how)
    x = torch.randn(4, 5, dtype=torch.float64)
    with keyed(0, 0, torch.arange(4)):
        assert torch.equal(dense(x), nn.Sequential(*dense).train(dense.training)(x))


def test_what_does_not_fit_is_left_to_torch():
    """Compiled code would read beyond the inputs, the weights or the samples."""
    dense, plain = two()
    x, samples = torch.randn(2, 6, 5, dtype=torch.float64), torch.arange(6)
    for inputs in (x, x.flatten(0, 1)):
        pairs = zip(results(dense, inputs, samples), results(plain, inputs, samples), strict=True)
        assert all(torch.equal(mine, expected) for mine, expected in pairs)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        results(dense, x[0, :, :4], samples)
    dense[3].weight = nn.Parameter(torch.randn(16, 31, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        results(dense, x[0], samples)


def test_it_follows_layers_that_are_exchanged():
    dense, _ = two()
    x, samples, steps = torch.randn(4, 5, dtype=torch.float64), torch.arange(4), []
    results(dense, x, samples, steps)
    dense[1] = nn.GELU()
    assert torch.equal(results(dense, x, samples, steps)[0], results(nn.Sequential(*dense), x, samples)[0])
    dense[1] = nn.ReLU()
    results(dense, x, samples, steps)
    assert [name == "_DenseBackward" for name in steps] == [True, False, True]


def test_outside_a_training_step_it_is_torchs_dropout():
    dense, plain = two()
    x = torch.randn(4, 5, dtype=torch.float64)
    values = []
    for model in (dense, plain):
        torch.manual_seed(1)
        values.append(model(x))
    assert torch.equal(*values)
