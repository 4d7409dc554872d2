"""`classical_mamba` and `classical_hydra`: the classical counterparts of the quantum models on series.

Mamba: Gu and Dao, arXiv:2312.00752. Hydra: Hwang et al., arXiv:2407.09941, here as a scan in both directions
with shared parameters. Sizes: d = 128, inner 256, state 16, convolution 4, dt of rank 8, 2 blocks.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ketscale.layers.dropout import SampleDropout

WIDTH, INNER, STATE, KERNEL, RANK, BLOCKS = 128, 256, 16, 4, 8, 2
EPSILON = 1e-5
# dt starts log-uniform between these, as published.
DT_START = (0.001, 0.1)


def scanned(
    rate: torch.Tensor, dt: torch.Tensor, x: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> torch.Tensor:
    """c[t] . h[t] of h[t] = exp(dt[t] rate) h[t - 1] + b[t] x[t] by torch's operators, one step after the other."""
    state, values = x.new_zeros(len(x), *rate.shape), []
    # Unbound first: the backward pass of an index into a series grows faster than its steps.
    for dt_t, x_t, b_t, c_t in zip(*(part.unbind(1) for part in (dt, x, b, c)), strict=True):
        state = torch.exp(dt_t[..., None] * rate) * state + x_t[..., None] * b_t[:, None]
        values.append((state @ c_t[..., None]).squeeze(-1))
    return torch.stack(values, 1)


class SelectiveScan(nn.Module):
    """The common part of both blocks: a causal convolution, and a state-space model with dt, b and c from the data.

    The bias of dt is initialised so that softplus(bias) is log-uniform in `DT_START`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(INNER, INNER, KERNEL, padding=KERNEL - 1, groups=INNER)
        self.dt = nn.Linear(RANK, INNER)
        start = torch.empty(INNER).uniform_(*map(math.log, DT_START)).exp()
        with torch.no_grad():
            # The inverse of softplus; expm1 keeps the digits of small numbers.
            self.dt.bias.copy_(start.expm1().log())
        self.a_log = nn.Parameter(torch.arange(1.0, STATE + 1).log().repeat(INNER, 1))
        self.d = nn.Parameter(torch.ones(INNER))

    def convolved(self, x: torch.Tensor) -> torch.Tensor:
        """SiLU of the causal convolution of (batch, steps, inner)."""
        steps = x.shape[1]
        return nn.functional.silu(self.convolution(x.transpose(1, 2))[..., :steps].transpose(1, 2))

    def scan(
        self, x: torch.Tensor, dt: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, scale_input: bool
    ) -> torch.Tensor:
        """y[t] = c[t] . h[t] + d x[t] with h[t] = exp(dt[t] A) h[t - 1] + b[t] x[t].

        scale_input: multiply the last term by dt[t] (Mamba's discretisation).
        x, dt and y: (batch, steps, inner); b, c: (batch, steps, state).
        """
        entering = dt * x if scale_input else x
        rate = -torch.exp(self.a_log)
        if x.is_cpu and x.dtype in (torch.float32, torch.float64):
            # Imported here, since a GPU does without the compiler. Mixed precision does too.
            from ketscale.problems.eeg import selective_scan

            return selective_scan.selective_scan(rate, dt, entering, b, c) + self.d * x
        # The states of a block are computed again for its backward pass, since those of all blocks are gigabytes.
        y = checkpoint(scanned, rate, dt, entering, b, c, use_reentrant=False, preserve_rng_state=False)
        return y + self.d * x


class MambaBlock(nn.Module):
    """(batch, steps, width) -> (batch, steps, width), with a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH, EPSILON)
        self.enter = nn.Linear(WIDTH, 2 * INNER, bias=False)
        self.ssm = SelectiveScan()
        self.select = nn.Linear(INNER, RANK + 2 * STATE, bias=False)
        self.leave = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block with its skip connection."""
        inner, z = self.enter(self.norm(x)).split(INNER, dim=-1)
        inner = self.ssm.convolved(inner)
        rank, b, c = self.select(inner).split([RANK, STATE, STATE], dim=-1)
        dt = nn.functional.softplus(self.ssm.dt(rank))
        y = self.ssm.scan(inner, dt, b, c, scale_input=True)
        return x + self.leave(y * nn.functional.silu(z))


class HydraBlock(nn.Module):
    """(batch, steps, width) -> (batch, steps, width), with a skip connection: the sum of scans in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(WIDTH, 2 * INNER + 2 * STATE + RANK, bias=False)
        self.ssm = SelectiveScan()
        self.inner_norm = nn.RMSNorm(INNER, EPSILON)
        self.leave = nn.Linear(INNER, WIDTH, bias=False)
        self.norm = nn.RMSNorm(WIDTH, EPSILON)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block with its skip connection."""
        z, inner, b, c, rank = self.enter(x).split([INNER, INNER, STATE, STATE, RANK], dim=-1)
        inner = self.ssm.convolved(inner)
        dt = nn.functional.softplus(self.ssm.dt(rank))
        # Both directions are one batch.
        both = [torch.cat([part, part.flip(1)]) for part in (inner, dt, b, c)]
        ahead, back = self.ssm.scan(*both, scale_input=False).chunk(2)
        y = self.inner_norm(ahead + back.flip(1))
        return x + self.norm(self.leave(y * nn.functional.silu(z)))


class StateSpaceModel(nn.Module):
    """Series (batch, channels, steps) -> blocks on every step, with skip connections -> their mean -> logits.

    BLOCK: the blocks' class.
    """

    BLOCK: ClassVar[type[nn.Module]]

    def __init__(self, inputs: tuple[int, int] = (64, 249), outputs: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs[0], WIDTH)
        self.dropout = SampleDropout(dropout)
        self.blocks = nn.Sequential(*(self.BLOCK() for _ in range(BLOCKS)))
        self.norm = nn.RMSNorm(WIDTH, EPSILON)
        self.classifier = self.head(outputs, dropout)

    def head(self, outputs: int, dropout: float) -> nn.Module:
        """The layers that give the logits."""
        return nn.Linear(WIDTH, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of series."""
        rows = self.dropout(self.embed(x.transpose(1, 2)))
        return self.classifier(self.norm(self.blocks(rows)).mean(1))


class ClassicalMamba(StateSpaceModel):
    """Series (batch, channels, steps) -> logits; 241,922 trainable parameters at 64 channels and 2 outputs."""

    BLOCK = MambaBlock


class ClassicalHydra(StateSpaceModel):
    """Series (batch, channels, steps) -> logits; 240,322 trainable parameters at 64 channels and 2 outputs."""

    BLOCK = HydraBlock

    def head(self, outputs: int, dropout: float) -> nn.Module:
        """See `StateSpaceModel.head`."""
        return nn.Sequential(
            nn.Linear(WIDTH, WIDTH // 2), nn.GELU(), SampleDropout(dropout), nn.Linear(WIDTH // 2, outputs)
        )
