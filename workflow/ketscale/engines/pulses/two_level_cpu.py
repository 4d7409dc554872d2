"""Evolutions of sites of two levels by machine code, with a step a lane: the function `splitting.evolutions`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad

from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.pulses import quaternions, two_level_kernels
from ketscale.engines.pulses.lattice import Lattice
from ketscale.engines.pulses.schemes import Scheme
from ketscale.engines.pulses.two_level_kernels import BLOCK, SiteDrives

LANES = lanes_of(torch.float64)

# About so many multiply-adds an exponential takes.
WORK = 60


def evolutions(
    scheme: Scheme, lattice: Lattice, amplitudes: torch.Tensor, step: torch.Tensor
) -> torch.Tensor:
    """See `splitting.evolutions`; on the CPU, for two levels."""
    items = _items(scheme)
    steps = len(amplitudes)
    rows = -(-(steps + 1) // LANES) * LANES
    # With steps of amplitude 0 around: see `two_level_kernels.ARGUMENTS`.
    samples = pad(amplitudes.permute(1, 2, 0), (1, rows - steps))
    drives = step * _paulis(lattice.drives)
    places = _places(lattice.drive_sites, lattice.sites)
    if places is not None:
        samples, drives = (_placed(tensor, dim, places) for tensor, dim in ((samples, 1), (drives, 0)))
    amounts = items.weights @ samples.flatten(1)
    undriven = (step * items.durations)[:, None, None] * _paulis(torch.diag_embed(lattice.energies))
    made: torch.Tensor = _Evolutions.apply(
        undriven,
        drives.unflatten(0, (lattice.sites, -1)),
        amounts.view(len(items.after), lattice.sites, -1, rows + 1),
        items,
        steps,
    )
    return made


class _Items(NamedTuple):
    """The exponentials of each A in the order of their action.

    starts: where each A's begin, and their number. after: 1 for those of the step before, else 0. weights: of samples.
    durations: of the undriven part.
    """

    starts: torch.Tensor
    after: torch.Tensor
    weights: torch.Tensor
    durations: torch.Tensor


@lru_cache(maxsize=64)
def _items(scheme: Scheme) -> _Items:
    first, *within, last = scheme.local
    lists = [(*last, *first), *within]
    parts = torch.tensor([part for each in lists for part in each])
    weights = torch.tensor(scheme.parts, dtype=torch.float64)
    after = torch.zeros(len(parts), dtype=torch.int64)
    after[: len(last)] = 1
    starts = torch.tensor([sum(map(len, lists[:k])) for k in range(len(lists) + 1)])
    durations = torch.tensor(scheme.durations, dtype=torch.float64)
    return _Items(starts, after, weights[parts], durations[parts])


@lru_cache(maxsize=64)
def _places(drive_sites: tuple[int, ...], sites: int) -> torch.Tensor | None:
    """The drives by site, as many for each, with the number after the last for none; None: they are so already."""
    by_site = [[k for k, at in enumerate(drive_sites) if at == site] for site in range(sites)]
    most = max(1, *map(len, by_site))
    padded = [[*each, *[len(drive_sites)] * (most - len(each))] for each in by_site]
    flat = [drive for each in padded for drive in each]
    return None if flat == list(range(len(drive_sites))) else torch.tensor(flat)


def _placed(tensor: torch.Tensor, dim: int, places: torch.Tensor) -> torch.Tensor:
    shape = list(tensor.shape)
    shape[dim] = 1
    return torch.cat([tensor, tensor.new_zeros(shape)], dim).index_select(dim, places)


def _paulis(hermitian: torch.Tensor) -> torch.Tensor:
    """The parts 1, X, Y, Z of Hermitian matrices (..., 2, 2), real (..., 4)."""
    if not hermitian.is_complex():
        hermitian = hermitian.to(torch.complex128)
    return torch.view_as_real(hermitian.resolve_conj()).flatten(-3) @ _projections()


@lru_cache(maxsize=1)
def _projections() -> torch.Tensor:
    paulis = torch.tensor(
        [[[1, 0], [0, 1]], [[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]], dtype=torch.complex128
    )
    return torch.view_as_real(paulis).flatten(1).T / 2


class _Evolutions(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        undriven: torch.Tensor,
        terms: torch.Tensor,
        amounts: torch.Tensor,
        items: _Items,
        steps: int,
    ) -> torch.Tensor:
        tensors = {"undriven": undriven.contiguous(), "terms": terms.contiguous(), "amounts": amounts}
        ctx.save_for_backward(*tensors.values())
        ctx.items, ctx.steps = items, steps
        kicks, sites = len(items.starts) - 1, terms.shape[0]
        own = amounts.new_empty((amounts.shape[-1] - 1) * kicks, sites, 2, 2, dtype=torch.complex128)
        _call("evolve", items, steps, {**tensors, "own": own})
        return own[: steps * kicks + 1]

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        first_derivatives_only("an evolution of a site")
        undriven, terms, amounts = ctx.saved_tensors
        kicks, (sites, drives, _) = len(ctx.items.starts) - 1, terms.shape
        blocks = _blocks(amounts)
        to_amounts = torch.zeros_like(amounts)
        to_undriven = amounts.new_zeros(blocks, *undriven.shape, LANES)
        to_terms = amounts.new_zeros(blocks, kicks, sites, drives, 4, LANES)
        tensors = {"undriven": undriven, "terms": terms, "amounts": amounts}
        tensors |= {"to_undriven": to_undriven, "to_terms": to_terms, "to_amounts": to_amounts}
        tensors["own"] = cotangent.resolve_conj().contiguous()
        _call("gradient", ctx.items, ctx.steps, tensors)
        return to_undriven.sum((0, -1)), to_terms.sum((0, 1, -1)), to_amounts, None, None


def _blocks(amounts: torch.Tensor) -> int:
    return -(-(amounts.shape[-1] - 1) // (LANES * BLOCK))


def _call(name: str, items: _Items, steps: int, tensors: dict[str, torch.Tensor]) -> None:
    amounts = tensors["amounts"]
    sites, drives, stride = amounts.shape[1:]
    kicks = len(items.starts) - 1
    tasks = _blocks(amounts) * kicks * sites
    # fmt: off
    _kernel(drives).run(
        name, threads_for(tasks, WORK * amounts.numel() // drives),
        tasks=tasks, steps=steps, sites=sites, kicks=kicks, groups=(stride - 1) // LANES, stride=stride,
        exponentials=len(items.after), starts=items.starts, after=items.after, **tensors,
    )
    # fmt: on


@lru_cache(maxsize=8)
def _kernel(drives: int) -> Kernel:
    functions, sources = (two_level_kernels.evolve, two_level_kernels.gradient), (quaternions,)
    arguments, plan = two_level_kernels.ARGUMENTS, SiteDrives(drives)
    return Kernel(functions, arguments, torch.float64, LANES, plan, sources)
