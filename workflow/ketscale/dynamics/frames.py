"""The computational states in which a gate is read: bare product states, or dressed ones that rotate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import as_complex
from ketscale.engines.pulses.frame import dressed_states
from ketscale.engines.pulses.settings import MOST_DRESSED
from ketscale.errors import UserError


@dataclass(frozen=True, eq=False)
class Frame:
    """Computational states, and the angular frequencies at which their phases rotate.

    states: complex128 (d, D), columns in the order of bits. energies: fp64 (D,).

    Example:
        >>> from ketscale import dynamics as kd
        >>> frame = kd.dressed_frame(kd.coupled_qubits())
        >>> idle = kd.evolve(kd.coupled_qubits(), None, 30.0, initial=frame.states, kind="unitary")
        >>> kd.process_fidelity(frame.amplitudes(idle, 30.0), torch.eye(4)).item()
        1.0...
    """

    states: torch.Tensor
    energies: torch.Tensor

    def amplitudes(self, final: torch.Tensor, duration: Any) -> torch.Tensor:
        """exp(i E_i t) <i|final>, complex (D, D) or (batch, D, D): the matrix that fidelities compare.

        final: columns (d, D) or (batch, d, D) that began as `states`; or their channel (D, D, d, d) or with a batch, of
            which the images' matrices (D, D, D, D) are made.
        duration: t, a number or a real tensor () or (batch,), differentiated.

        Raises:
            UserError: there are other columns than the states, or the duration is no number.
        """
        if not isinstance(duration, (int, float, torch.Tensor)):
            raise UserError(f"duration: {duration} is not a number, nor a tensor")
        states = as_complex(self.states, final.real)
        d, count = states.shape
        if tuple(final.shape[-2:]) != (d, count) and tuple(final.shape[-4:]) != (count, count, d, d):
            raise UserError(
                f"final: must be {tuple(states.shape)}, the columns that began as the frame's states, or their channel, "
                f"not {tuple(final.shape[-4:])}"
            )
        time = torch.as_tensor(duration, dtype=final.real.dtype, device=final.device)
        angles = time[..., None] * self.energies.to(time)
        phases = torch.polar(torch.ones_like(angles), angles)
        block = states.mH @ final
        if final.ndim < 4:
            return phases[..., None] * block
        return (phases[..., None] * phases.conj()[..., None, :])[..., None, None, :, :] * (block @ states)


def bare_frame(system: System) -> Frame:
    """The product states of the two lowest levels of each site, whose phases do not rotate.

    Example:
        >>> from ketscale import dynamics as kd
        >>> bare_frame(kd.transmon(levels=3)).states.shape
        torch.Size([3, 2])
    """
    states = torch.from_numpy(system.computational_states.copy())
    return Frame(states, torch.zeros(states.shape[1], dtype=torch.float64))


def dressed_frame(system: System) -> Frame:
    """The eigenstates of the undriven system at its usual parameters that have most of each computational product state.

    They rotate at their energies; their amplitude in that product state is positive.

    Raises:
        UserError: a product state is shared by several eigenstates so evenly that none has enough of it, or there are too many states.

    Example:
        >>> from ketscale import dynamics as kd
        >>> dressed_frame(kd.transmon(0.5)).energies
        tensor([0.0000, 0.5000], dtype=torch.float64)
    """
    if system.dimension > MOST_DRESSED:
        raise UserError(
            f"frame: {system.dimension} states are too many to diagonalise (at most {MOST_DRESSED}); use bare_frame"
        )
    places = torch.from_numpy(system.computational_states.argmax(0))
    hamiltonian = torch.from_numpy(system.hamiltonian())
    energies, states = dressed_states(hamiltonian, places, "use bare_frame, or other parameters")
    return Frame(states, energies)
