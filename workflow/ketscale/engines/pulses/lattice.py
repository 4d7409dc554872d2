"""What integrators evolve: coupled sites of a few levels each, and the operators that pulses drive."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import torch

from ketscale.engines.operators import check_hermitian, check_pairs, computational_places, embedded
from ketscale.errors import UserError
from ketscale.private_torch import is_mapped


@dataclass(frozen=True, eq=False)
class Lattice:
    """H(t) = sum_i energies[i] + sum_p couplings[p] + sum_k f_k(t) drives[k] + sum_l g_l(t) pair_drives[l].

    Each acts on its sites.

    Angular frequencies in rad/ns, times in ns, and hbar is 1. The f_k and g_l are real. All tensors are in fp64 and may have
    gradients. In the product basis the first site is the slowest index (leftmost in a Kronecker product), and so is
    the first site of a pair.

    levels: number d of levels, the same on each site. sites: their number n.
    energies: real (n, d), the diagonal Hamiltonian of each site by itself.
    pairs: sites (i, j) that are coupled. couplings: complex Hermitian (pairs, d*d, d*d).
    drive_sites: the site of each drive. drives: complex Hermitian (drives, d, d).
    driven_pairs: for each coupling that is driven, the number of its pair; None, or pair_drives: complex Hermitian
        (driven pairs, d*d, d*d). Amplitudes have columns for the drives, and then for these.

    Raises:
        UserError: the shapes do not fit one another, a site does not exist, or an operator is not Hermitian.
    """

    levels: int
    sites: int
    energies: torch.Tensor
    pairs: tuple[tuple[int, int], ...]
    couplings: torch.Tensor
    drive_sites: tuple[int, ...]
    drives: torch.Tensor
    driven_pairs: tuple[int, ...] = ()
    pair_drives: torch.Tensor | None = None

    def __post_init__(self) -> None:
        d = self.levels
        wanted = {
            "energies": (self.sites, d),
            "couplings": (len(self.pairs), d * d, d * d),
            "drives": (len(self.drive_sites), d, d),
            "pair_drives": (len(self.driven_pairs), d * d, d * d),
        }
        if self.pair_drives is None and not self.driven_pairs:
            del wanted["pair_drives"]
        for name, shape in wanted.items():
            found = tuple(getattr(getattr(self, name), "shape", ()))
            if found != shape:
                raise UserError(f"{name}: must be of shape {shape}, not {found}")
        for name in list(wanted)[1:]:
            given = getattr(self, name).detach()
            # What is not a number passes: if a trained device diverges, its results say so.
            if not is_mapped(given) and given.isfinite().all():
                check_hermitian(name, given, instead="; instead of an operator a, give a + a^+")
        check_pairs(self.pairs, self.sites)
        for name, count in (("drive_sites", self.sites), ("driven_pairs", len(self.pairs))):
            if not set(getattr(self, name)) <= set(range(count)):
                raise UserError(f"{name}: are numbers from 0 to {count - 1}, not {getattr(self, name)}")

    @property
    def dimension(self) -> int:
        """Number of product states, d**n."""
        return self.levels**self.sites

    @property
    def computational(self) -> torch.Tensor:
        """The places of the 2**n product states of levels 0 and 1 in the product basis, int64 in their usual order."""
        return torch.from_numpy(computational_places(self._every)).to(self.energies.device)

    @property
    def _every(self) -> tuple[int, ...]:
        return (self.levels,) * self.sites

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Energies, couplings, drives and, if there are any, those of couplings."""
        own = (self.energies, self.couplings, self.drives)
        return own if self.pair_drives is None else (*own, self.pair_drives)

    @property
    def controls(self) -> int:
        """Number of amplitudes, those of drives and those of driven couplings."""
        return len(self.drive_sites) + len(self.driven_pairs)

    def with_tensors(self, *tensors: torch.Tensor) -> Lattice:
        """The same with other `tensors` of the same shapes, which are not checked again."""
        made = copy(self)
        names = ("energies", "couplings", "drives", "pair_drives")[: len(tensors)]
        vars(made).update(zip(names, tensors, strict=True))
        return made

    def to(self, device: torch.device | str) -> Lattice:
        """The same with its tensors on a device, differentiable in the given ones."""
        return self.with_tensors(*(tensor.to(device) for tensor in self.tensors))

    def embedded(self, operator: torch.Tensor, sites: tuple[int, ...]) -> torch.Tensor:
        """An operator on these sites as a matrix of the product basis; see `operators.embedded`."""
        made: torch.Tensor = embedded(operator, sites, self._every)
        return made

    def hamiltonian(self) -> torch.Tensor:
        """H without drives as a matrix of the product basis, complex (d**n, d**n)."""
        total = self.couplings.new_zeros(self.dimension, self.dimension)
        for site, energies in enumerate(self.energies):
            total = total + self.embedded(torch.diag(energies).to(total.dtype), (site,))
        for pair, coupling in zip(self.pairs, self.couplings, strict=True):
            total = total + self.embedded(coupling, pair)
        return total
