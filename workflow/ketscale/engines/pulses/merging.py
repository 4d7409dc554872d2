"""Gates of a splitting's sites merged with the couplings before and after them, by torch's operators."""

from __future__ import annotations

import torch

from ketscale.engines.pulses.placement import Place


def merged(
    own: torch.Tensor, pairs: tuple[Place, ...], couplings: torch.Tensor, symmetric: bool
) -> torch.Tensor:
    """Each A's gates on pairs, with the start of the B after it, and if symmetric the end of the one before it.

    own: evolutions A of the sites (steps * s + 1, n, d, d). couplings: what each of the s B's of a step begins with, and
    ends with if it is symmetric, (s, pairs, d*d, d*d). Returns (steps * s + 1, pairs, d*d, d*d).
    """
    sites = [torch.tensor([pair[k] for pair in pairs], dtype=torch.int64, device=own.device) for k in (0, 1)]
    products = torch.einsum("kpab,kpcd->kpacbd", own[:, sites[0]], own[:, sites[1]])
    gates = products.reshape(len(own), *couplings.shape[1:])
    by_step = ((len(own) - 1) // len(couplings), *couplings.shape)
    started = couplings @ gates[:-1].reshape(by_step)
    gates = torch.cat([started.reshape(gates[:-1].shape), gates[-1:]])
    if not symmetric:
        return gates
    ended = gates[1:].reshape(by_step) @ couplings
    return torch.cat([gates[:1], ended.reshape(gates[1:].shape)])
