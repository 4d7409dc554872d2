"""The states in which amplitudes are read: the dressed ones of an undriven system as they rotate, or bare product states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import as_complex
from ketscale.engines.pulses.chain import device_of
from ketscale.engines.pulses.eigenstates import eigenstates, eigensystem
from ketscale.engines.pulses.published import MOST_DRESSED
from ketscale.errors import UserError
from ketscale.private_torch import is_mapped
from ketscale.shapes import Complex, Float

# The least share of a product state in its eigenstate: above a half, which two states in resonance share to within rounding.
SHARE = 0.51
# What to do where a site is no qubit of the gate.
COUPLER = (
    "of a coupler level 0 alone counts: kd.Frame(f.states[:, k], f.energies[k]) with f = kd.dressed_frame(system) and k the "
    "columns whose bit of the coupler is 0, such as [0, 1, 4, 5] of the middle one of three sites"
)


@dataclass(frozen=True, eq=False)
class Frame:
    """Computational states, and the angular frequencies at which their phases rotate.

    states: complex (d, D), columns in the order of bits, the first site's the slowest. energies: real (D,). Those of several
        systems are a batch: (batch, d, D) and (batch, D).

    Example:
        >>> from ketscale import dynamics as kd
        >>> frame = kd.dressed_frame(kd.transmon(0.5))
        >>> idle = kd.evolve(kd.transmon(0.5), None, 30.0, initial=frame.states, kind="unitary")
        >>> kd.process_fidelity(frame.amplitudes(idle, 30.0), torch.eye(2)).item()
        1.0...
    """

    states: torch.Tensor
    energies: torch.Tensor

    def amplitudes(
        self,
        final: Complex[torch.Tensor, "*batch {self.states.shape[-2]} _"],
        duration: Float[torch.Tensor, "*each"] | float,
    ) -> Complex[torch.Tensor, "*batch {self.states.shape[-1]} _"]:
        """exp(i E_i t) <i|psi_j> after a time t, complex (D, columns) or (batch, D, columns).

        final: columns psi (d, columns) or (batch, d, columns); columns that began as `states` give the matrix that fidelities
            compare. Or the channel of these states, (D, D, d, d) or with a batch, of which the images' matrices
            (D, D, D, D) are made.
        duration: t, a number or a real tensor () or (batch,), differentiated.

        Raises:
            UserError: these are no columns of the states' dimension.
        """
        states = as_complex(self.states, final.real)
        d, count = states.shape[-2:]
        channel = final.ndim >= 4 and tuple(final.shape[-4:]) == (count, count, d, d)
        if final.ndim < 2 or final.shape[-2] != d or (final.ndim >= 4 and not channel):
            raise UserError(
                f"final: must be columns of {d} amplitudes, such as {(d, count)} that began as the frame's states, or "
                f"their channel, not {tuple(final.shape[-4:])}"
            )
        time = torch.as_tensor(duration, dtype=final.real.dtype, device=final.device)
        angles = time[..., None] * self.energies.to(time)
        phases = torch.polar(torch.ones_like(angles), angles)
        if not channel:
            return phases[..., None] * (final.mT @ states.conj()).mT
        rotation = phases[..., None] * phases.conj()[..., None, :]
        states = states[..., None, None, :, :]
        return rotation[..., None, None, :, :] * (states.mH @ final @ states)


def bare_frame(system: System) -> Frame:
    """The product states of the two lowest levels of each site, whose phases do not rotate: the same for any systems of these levels.

    Example:
        >>> from ketscale import dynamics as kd
        >>> bare_frame(kd.transmon(levels=3)).states.shape
        torch.Size([3, 2])
    """
    states = torch.tensor(system.computational_states, device=device_of(system))
    return Frame(states, torch.zeros_like(states[0].real))


def dressed_frame(system: System | Sequence[System]) -> Frame:
    """The eigenstates of the undriven system at its usual parameters that have most of each computational product state.

    system: one; or a list of several with the same levels, whose frame is a batch.

    They rotate at their energies, and are differentiable in what the operators are made of. As more than half of a product
    state is needed (`SHARE`), no two have the same name. Their amplitude there is positive.

    Raises:
        UserError: a product state is shared by several eigenstates so evenly that none has enough of it, or there are too
            many states.

    Example:
        >>> from ketscale import dynamics as kd
        >>> dressed_frame(kd.transmon(0.5)).energies
        tensor([0.0000, 0.5000], dtype=torch.float64)
    """
    if isinstance(system, Sequence):
        each = [dressed_frame(one) for one in system]
        if not each or len({one.states.shape for one in each}) > 1:
            raise UserError("system: must be a system, or a list of systems with the same levels")
        return Frame(torch.stack([one.states for one in each]), torch.stack([one.energies for one in each]))
    if system.dimension > MOST_DRESSED:
        raise UserError(
            f"frame: {system.dimension} product states are too many to diagonalise (at most {MOST_DRESSED}); use fewer levels, "
            "or bare states (bare_frame; in a config frame: laboratory)"
        )
    undriven = torch.as_tensor(system.hamiltonian(), device=device_of(system))
    places = torch.as_tensor(system.computational, device=device_of(system))
    solution = eigensystem(undriven)
    share, which = solution.states[places].abs().square().max(-1)
    if not is_mapped(share) and (share < SHARE).any():
        worst = int(share.argmin())
        bits = f"{worst:0{len(places).bit_length() - 1}b}"
        raise UserError(
            f"frame: no eigenstate has {SHARE:.0%} of |{bits}> (at most {share[worst]:.0%}), since it is in resonance with others",
            "change the parameters, such as a device's spread or couplings, or use bare states",
        )
    energies, states = eigenstates(undriven, solution, which)
    own = states[places, torch.arange(len(places), device=places.device)]
    return Frame(states * (own.conj() / own.abs()), energies)
