"""`liouville`: exponentials of complex Liouvillians, which act on the d**2 entries of density matrices, by torch."""

from collections.abc import Callable

import torch

from ketscale.engines.dynamics.propagators import Propagator
from ketscale.engines.dynamics.system import Operators, System
from ketscale.engines.dynamics.tasks import Tasks, as_complex, check_tasks, default_parameters


def commutator(operator: torch.Tensor) -> torch.Tensor:
    """The matrix of rho -> -i [operator, rho]."""
    one = torch.eye(len(operator), dtype=operator.dtype, device=operator.device)
    return -1j * (torch.kron(operator, one) - torch.kron(one, operator.mT.contiguous()))


def dissipator(jump: torch.Tensor) -> torch.Tensor:
    """The matrix of rho -> L rho L^+ - (L^+ L rho + rho L^+ L) / 2."""
    one = torch.eye(len(jump), dtype=jump.dtype, device=jump.device)
    square = jump.mH @ jump
    decay = torch.kron(square, one) + torch.kron(one, square.mT.contiguous())
    return torch.kron(jump, jump.conj().resolve_conj()) - decay / 2


def weighted(
    weights: torch.Tensor, operators: Operators, of: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """The sum of the operators' matrices with weights (..., operators)."""
    terms = (
        weight[..., None, None] * of(as_complex(operator, weights))
        for weight, operator in zip(weights.unbind(-1), operators.values(), strict=True)
    )
    return sum(terms, torch.zeros((), dtype=weights.dtype.to_complex(), device=weights.device))


class Liouville(Propagator):
    """See `Propagator` for the contract."""

    def __init__(self, strict: bool = True) -> None:
        self.strict = strict

    def state(self, system: System, tasks: Tasks) -> torch.Tensor:
        check_tasks(system, tasks, self.strict)
        controls, size = tasks.controls, system.dimension**2
        parameters = default_parameters(system, controls) if tasks.parameters is None else tasks.parameters
        fixed = weighted(parameters, system.drift, commutator)
        if tasks.rates is not None:
            fixed = fixed + weighted(tasks.rates, system.jumps, dissipator)
        fixed = fixed.expand(len(controls), size, size)[:, None]
        driven = weighted(controls, system.controls, commutator)
        generators = (fixed + driven).expand(-1, controls.shape[1], -1, -1)
        initial = torch.eye(1, size, dtype=generators.dtype, device=controls.device)
        if tasks.initial is not None:
            initial = tasks.initial.reshape(-1, size)
        states = initial.expand(len(controls), size)
        for segment in torch.linalg.matrix_exp(tasks.segment * generators).unbind(1):
            states = (segment @ states[..., None])[..., 0]
        return states.unflatten(1, (system.dimension, system.dimension))
