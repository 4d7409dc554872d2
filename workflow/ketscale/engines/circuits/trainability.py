"""What random weights make of a circuit: the gradients of its expectation values, and the spread of its states.

Gradients that vanish exponentially with the number of qubits leave nothing to train by (McClean et al., Nat. Commun. 9, 4812,
2018; Cerezo et al., Nat. Commun. 12, 1791, 2021). Expressibility is how near the final states come to random ones (Sim,
Johnson and Aspuru-Guzik, Adv. Quantum Technol. 2, 1900070, 2019), and the entanglement is that of Meyer and Wallach
(J. Math. Phys. 43, 4273, 2002). `haar` has what random unitaries and states have of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.simulator import Simulator
from ketscale.shapes import Complex, Float

# A derivative is zero for all weights if its square is never above this many squared roundings.
_ROUNDING = 64
# Rows of a matrix of overlaps at a time.
_ROWS = 512


class Gradients(NamedTuple):
    """Derivatives of expectation values by drawn angles.

    pairs: how many pairs of a word and an angle depend on each other. square, variance: the mean square over draws, and
    the variance, without bias; means over these pairs, 0 without any.
    """

    pairs: int
    square: float
    variance: float


def gradients(
    simulator: Simulator,
    circuit: Circuit,
    drawn: Float[torch.Tensor, "draws columns"],
    uniform: Float[torch.Tensor, "draws columns"],
    first: int,
    paulis: Sequence[str],
    initial: torch.Tensor | None = None,
) -> Gradients:
    """The gradients of Pauli words at the angles that were drawn.

    circuit: without weights, see `transforms.inputs_only`. drawn: angles in radians, of which those from column `first` on
        count.
    uniform: the same tensor, or one in which these are from [0, 2 pi): they tell which words depend on which angles at all.
    initial: see `Simulator`.

    Raises:
        UserError: as for `Simulator.expval`.
    """

    def derivatives(angles: torch.Tensor) -> Sequence[torch.Tensor]:
        """For each Pauli word its derivatives (draws, columns - first), in double precision on the CPU."""
        angles = angles.detach().requires_grad_()
        with torch.enable_grad():
            values = simulator.expval(circuit, Angles(angles, angles.new_empty(0)), paulis, initial)
            found = [
                torch.autograd.grad(column.sum(), angles, retain_graph=True)[0] for column in values.unbind(1)
            ]
        return [each[:, first:].detach().to("cpu", torch.float64) for each in found]

    floor = (_ROUNDING * torch.finfo(drawn.dtype).eps) ** 2
    pairs, square, variance = 0, 0.0, 0.0
    at_drawn = derivatives(drawn)
    at_uniform = at_drawn if uniform is drawn else derivatives(uniform)
    for here, anywhere in zip(at_drawn, at_uniform, strict=True):
        depends = (anywhere.square() > floor).any(0)
        pairs += int(depends.sum())
        square += float(here.square().mean(0)[depends].sum())
        variance += float(here.var(0)[depends].sum())
    return Gradients(pairs, square / max(1, pairs), variance / max(1, pairs))


def frame_potential(states: Complex[torch.Tensor, "draws amplitudes"], t: int) -> float:
    """The mean of |<a|b>|^(2t) over all pairs of two different draws: without bias the frame potential of order t."""
    total, draws = 0.0, len(states)
    for rows in states.split(_ROWS):
        total += float((rows @ states.mH).abs().double().pow(2 * t).sum())
    own = float(states.abs().double().square().sum(1).pow(2 * t).sum())
    return (total - own) / (draws * (draws - 1))


def meyer_wallach(states: Complex[torch.Tensor, "draws amplitudes"]) -> float:
    """The mean over draws of Q = 2 (1 - mean over qubits of the purity of the qubit): 0 of product states, at most 1."""
    draws, size = states.shape
    qubits = size.bit_length() - 1
    states = states.to(torch.complex128)
    purity = torch.zeros(draws, dtype=torch.float64, device=states.device)
    for qubit in range(qubits):
        parts = states.reshape(draws, 2**qubit, 2, -1).transpose(1, 2).flatten(2)
        purity += (parts @ parts.mH).abs().square().sum((1, 2))
    # Rounding may leave a product state with less than nothing.
    return max(0.0, float((2 * (1 - purity / qubits)).mean()))
