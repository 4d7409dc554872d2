"""L-BFGS-B (Byrd et al., SIAM J. Sci. Comput. 16, 1190, 1995) by SciPy on torch's parameters, in fp64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def minimise(
    parameters: Sequence[nn.Parameter],
    evaluate: Callable[[], torch.Tensor],
    iterated: Callable[[], bool],
    iterations: int,
) -> None:
    """Minimise a loss from where the parameters stand; at the end they hold the last iteration's.

    Args:
        parameters: real and on the CPU or one GPU.
        evaluate: the loss at the parameters' present values, their gradients left in them.
        iterated: called after each iteration, the parameters at its point; False ends the search.
        iterations: the most there may be; fewer where SciPy finds nothing better any more.
    """
    from scipy.optimize import minimize

    def place(point: NDArray[np.float64]) -> None:
        with torch.no_grad():
            vector = torch.from_numpy(point).to(parameters[0].device, parameters[0].dtype)
            vector_to_parameters(vector, parameters)

    def loss_and_gradient(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        place(point)
        loss = float(evaluate())
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        return loss, parameters_to_vector(gradients).double().cpu().numpy()

    def after(intermediate_result: object) -> None:
        # The point of the last evaluation may be one that the line search gave up.
        loss_and_gradient(intermediate_result.x)  # type: ignore[attr-defined]
        if not iterated():
            raise StopIteration

    start = parameters_to_vector(parameters).detach().double().cpu().numpy()
    minimize(
        loss_and_gradient, start, method="L-BFGS-B", jac=True, callback=after, options={"maxiter": iterations}
    )
