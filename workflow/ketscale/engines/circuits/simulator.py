"""The protocol that every simulator follows: a way to evaluate and differentiate a Circuit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from ketscale.engines.circuits.circuit import Angles, Circuit


class Superposition(NamedTuple):
    """alpha |psi> + beta R|psi> + |constant>, with R the reversal of the order of all wires; not normalised.

    coefficients: alpha and beta, complex (2,). constant: complex (2**n,), the same for all samples.
    """

    coefficients: torch.Tensor
    constant: torch.Tensor


class Simulator(Protocol):
    """Evaluates a batch of circuits, differentiably, in the angles' precision and on their device.

    `initial` is a complex (2**n,) or (batch, 2**n) normalised state to start from instead of |0...0>.
    A batch of zero samples is allowed and gives a result with zero rows that can be differentiated.
    """

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """Final state vectors, complex (batch, 2**n).

        Raises:
            UserError: shapes do not fit, or this simulator cannot give or differentiate what is asked.
        """
        ...

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Expectation values of full-length Pauli words such as 'ZIXI', real (batch, len(paulis)).

        Raises:
            UserError: as for `state`, or a word has a wrong length or letter.
        """
        ...

    def superposed(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], superposition: Superposition
    ) -> torch.Tensor:
        """Expectation values, as of `expval`, of a normalised superposition of each final state.

        Raises:
            UserError: as for `expval`, or the superposition does not fit.
        """
        ...
