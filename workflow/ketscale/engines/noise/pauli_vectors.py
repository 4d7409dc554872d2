"""Noisy circuits by torch's operators: on any device, to any order of derivatives; what the kernels are compared with."""

from __future__ import annotations

import torch

from ketscale.engines.noise.passes import Chain, Noisy


def values(program: Noisy, features: torch.Tensor) -> torch.Tensor:
    """The measured words (batch, words) for features (batch, features)."""
    batch, count = len(features), program.qubits
    column = {feature: number for number, feature in enumerate(program.features)}

    def constant(matrix: object) -> torch.Tensor:
        return torch.as_tensor(matrix).to(features)

    def of_chain(chain: Chain) -> torch.Tensor:
        made = torch.eye(4).to(features)
        for factor in chain:
            matrix = constant(factor.constant)
            for feature, part in factor.parts:
                matrix = matrix + features[:, column[feature], None, None] * constant(part)
            made = matrix @ made
        return made

    vector = features.new_zeros(4**count)
    vector[[sum(3 * 4**site for site in range(count) if bits >> site & 1) for bits in range(2**count)]] = 1
    vector = vector.expand(batch, -1)
    for each in program.passes:
        axes = [1 + site for site in each.sites]
        rest = [axis for axis in range(1, count + 1) if axis not in axes]
        order = [0, *axes, *rest]
        back = [order.index(axis) for axis in range(count + 1)]
        state = vector.reshape(batch, *(4,) * count).permute(order)
        shape, state = state.shape, state.reshape(batch, 4 ** len(axes), -1)
        if each.matrix is not None:
            state = constant(each.matrix) @ state
        elif len(axes) == 1:
            state = of_chain(each.chains[0]) @ state
        else:
            first, second = map(of_chain, each.chains)
            state = (first @ state.reshape(batch, 4, -1)).reshape(batch, 4, 4, -1)
            state = (second.unsqueeze(-3) @ state).reshape(batch, 16, -1)
            state = state[:, torch.as_tensor(each.order).argsort()] * constant(each.factors)[:, None]
            if each.spread is not None:
                slope = features.new_full((16, 1), each.spread.slope)
                slope[0] = 0
                state = state * (1 + features[:, column[each.spread.feature], None, None] * slope)
        vector = state.reshape(shape).permute(back).reshape(batch, -1)
    return vector[:, torch.as_tensor(program.places, device=vector.device)]
