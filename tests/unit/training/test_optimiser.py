"""Our optimiser is torch's: the same numbers step by step."""

import math

import pytest
import torch

from ketscale.training.flat import Flat
from ketscale.training.optimiser import Adam, AdamW, GradientDescent, Schedule, create
from tests.toys import protocol_of


def optimiser_of(flat, rates, decays, limits, kind=Adam, momenta=None):
    """An optimiser with a learning rate, a weight decay, a norm to clip to and a momentum for each member."""
    settings = zip(rates, decays, limits, momenta or [0.0] * len(rates), strict=True)
    names = ("learning_rate", "weight_decay", "clip_norm", "momentum")
    return kind(flat, [protocol_of({"steps": 1, **dict(zip(names, each, strict=True))}) for each in settings])


def numbers(*shapes, seed=0, dtype=torch.float64):
    """Parameters of normally distributed numbers."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in shapes]


def descend(optimiser):
    """A step down the sum of the cubes of each member's numbers."""
    flat = optimiser.flat
    flat.clear()
    sum((leaf.abs() ** 3).sum() for leaf in flat.leaves).backward()
    flat.collect()
    optimiser.step(flat.norms())


TORCHS = {
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
}


@pytest.mark.parametrize("limit", [None, 1.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
@pytest.mark.parametrize("name", TORCHS)
def test_an_optimiser_is_torchs(name, dtype, limit):
    torch.manual_seed(0)
    start = [torch.randn(7, 3, dtype=dtype), torch.randn(4, dtype=dtype)]
    actual = [torch.nn.Parameter(x.clone()) for x in start]
    expected = [torch.nn.Parameter(x.clone()) for x in start]
    flat = Flat([actual])
    kind, more = TORCHS[name]
    settings = {
        "steps": 1,
        "learning_rate": 0.01,
        "weight_decay": 0.1,
        "clip_norm": limit,
        "optimiser": name,
        **more,
    }
    mine = create([protocol_of(settings)], flat)
    reference = kind(expected, lr=0.01, weight_decay=0.1, **more)
    for _ in range(25):
        for a, b in zip(actual, expected, strict=True):
            a.grad.copy_(2 * a.detach() + 1)
            b.grad = 2 * b.detach() + 1
        mine.step(flat.norms())
        if limit:
            assert torch.nn.utils.clip_grad_norm_(expected, limit) > limit
        reference.step()
    for a, b in zip(actual, expected, strict=True):
        # A value that is near 0 in the end still has the rounding of one that was not.
        single = dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=2e-6 if single else 1e-14, atol=0 if single else 2**-53)


@pytest.mark.parametrize("kind", [Adam, AdamW, GradientDescent])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_a_members_numbers_do_not_depend_on_the_others(kind, dtype):
    """Each with its own settings, some of them shared; after a while two go on without the others."""
    rates, decays, limits = [0.01, 0.02, 0.01, 0.01], [0.1, 0.1, 0.1, 0.0], [None, 1.0, 2.0, 1e9]
    momenta = [0.9, 0.0, 0.5, 0.5] if kind is GradientDescent else [0.0] * 4
    joint = [numbers((7, 3), (5,), seed=seed, dtype=dtype) for seed in range(4)]
    single = [numbers((7, 3), (5,), seed=seed, dtype=dtype) for seed in range(4)]
    group = optimiser_of(Flat(joint), rates, decays, limits, kind, momenta)
    each = [
        optimiser_of(Flat([member]), [rate], [decay], [limit], kind, [momentum])
        for member, rate, decay, limit, momentum in zip(single, rates, decays, limits, momenta, strict=True)
    ]
    for number in range(12):
        if number == 7:
            group_of, left = group, [2, 0]
            group = optimiser_of(
                Flat([joint[member] for member in left]),
                *([of[member] for member in left] for of in (rates, decays, limits)),
                kind,
                [momenta[member] for member in left],
            )
            for place, member in enumerate(left):
                group.load_state_dict(group_of.state_dict(member), place)
            each = [each[member] for member in left]
        for optimiser in (group, *each):
            descend(optimiser)
    for mine, expected in zip(joint, single, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, expected, strict=True))


@pytest.mark.parametrize("patience", [0, 3])
def test_plateau_is_torchs(patience):
    losses = [1.0, 0.9, 0.95, 0.91, 0.89999, 0.92, 0.5, 0.6, 0.7, 0.6, 0.55, 0.51, 0.5, 0.4, 0.4]
    rate = 1.0
    expected = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    plateau = Schedule(protocol_of({"epochs": 15, "plateau": {"factor": 0.5, "patience": patience}}))
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(expected, factor=0.5, patience=patience)
    for loss in losses:
        rate = plateau.step(rate, 0, loss)
        reference.step(loss)
        assert rate == expected.param_groups[0]["lr"]


@pytest.mark.parametrize("minimum", [0.0, 0.1])
def test_the_cosine_is_torchs_and_begins_anywhere(minimum):
    expected = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.5)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(expected, 7, minimum)
    settings = {"epochs": 7, "learning_rate": 0.5, "cosine": {"minimum": minimum}}
    for epoch in range(7):
        expected.step()
        reference.step()
        # A resumed run knows its epoch alone.
        rate = Schedule(protocol_of(settings)).step(0.3, epoch, math.nan)
        assert rate == pytest.approx(expected.param_groups[0]["lr"], rel=1e-12, abs=1e-16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threads", [1, 3])
def test_large_rows_are_updated_by_several_threads_as_by_one(dtype, threads):
    """Rows of more than a chunk, whose last chunk is not full; torch's kernel is the reference, as on a GPU."""
    actual, peer = (
        Flat([numbers((300, 401), seed=seed, dtype=dtype) for seed in range(2)]) for _ in range(2)
    )
    mine, reference = (optimiser_of(flat, [0.1, 0.2], [0.01, 0.0], [1.0, None]) for flat in (actual, peer))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for step in range(3):
            for flat in (actual, peer):
                flat.gradients.copy_(flat.values * (step + 1) + 0.1)
            mine.step(actual.norms())
            reference._steps += 1
            reference._step_by_torch(peer.norms())
    finally:
        torch.set_num_threads(before)
    # Values below 8 are rounded three times, in either way.
    rounding = torch.finfo(dtype).eps * 8
    torch.testing.assert_close(actual.values, peer.values, rtol=0, atol=rounding)


@pytest.mark.parametrize("kind", [Adam, GradientDescent])
def test_a_gradient_that_is_not_finite_is_in_the_values(kind):
    """Clipping must not hide it."""
    for wrong in (torch.nan, torch.inf):
        for limit in (None, 1.0):
            flat = Flat([numbers((3,)), numbers((3,))])
            flat.gradients.fill_(0.5)
            flat.gradients[0, 1] = wrong
            optimiser_of(flat, [0.1] * 2, [0.0] * 2, [limit] * 2, kind).step(flat.norms())
            assert not flat.values[0, 1].isfinite() or (
                kind is GradientDescent and wrong == torch.inf and limit
            )
            assert flat.values[1].isfinite().all()
