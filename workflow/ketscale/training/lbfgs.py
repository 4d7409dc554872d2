"""L-BFGS-B (Byrd et al., SIAM J. Sci. Comput. 16, 1190, 1995) by SciPy on torch's parameters, in fp64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ketscale.parallel.world import World, as_real


def minimise(
    parameters: Sequence[nn.Parameter],
    evaluate: Callable[[], float],
    iterated: Callable[[], bool],
    iterations: int,
    world: World,
) -> str:
    """Minimise a loss, starting from the parameters' values; at the end they have those of the last iteration.

    SciPy runs on every rank and gets bitwise the same numbers, those of rank 0, so all ranks take the same steps and
    stop at the same one.

    Args:
        parameters: the same on every rank, all on one device; a complex number counts as two real ones.
        evaluate: returns the loss of all ranks at the parameters' values and leaves its gradients in them; collective.
        iterated: called after each iteration with the parameters at its point; False, on every rank, ends the search.
        iterations: the largest number; there are fewer if SciPy finds no better point.

    Returns:
        SciPy's message of why it ended.

    Raises:
        RuntimeError: SciPy went to another point on this rank than on rank 0.
    """
    from scipy.optimize import minimize

    def place(point: NDArray[np.float64]) -> None:
        vector = torch.from_numpy(point)
        with torch.no_grad():
            views = [as_real(parameter) for parameter in parameters]
            for view, part in zip(views, vector.split([view.numel() for view in views]), strict=True):
                view.copy_(part.view_as(view))

    def loss_and_gradient(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        place(point)
        loss = evaluate()
        gradient = _vector([torch.zeros_like(p) if p.grad is None else p.grad for p in parameters])
        own = torch.cat([torch.tensor([loss], dtype=torch.float64), gradient, torch.from_numpy(point)])
        shared = world.of_rank_0(own)
        if not np.array_equal(shared[-len(point) :].numpy(), point):
            raise RuntimeError(
                f"l-bfgs went to another point on rank {world.rank} than on rank 0: are the nodes of the same kind?"
            )
        return float(shared[0]), shared[1 : 1 + len(point)].numpy()

    def after(intermediate_result: object) -> None:
        # The last evaluation may have been at a point that the line search rejected.
        loss_and_gradient(intermediate_result.x)  # type: ignore[attr-defined]
        if not iterated():
            raise StopIteration

    start = _vector([parameter.detach() for parameter in parameters]).numpy()
    result = minimize(
        loss_and_gradient, start, method="L-BFGS-B", jac=True, callback=after, options={"maxiter": iterations}
    )
    return str(result.message)


def _vector(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """All numbers in one vector, fp64 on the CPU."""
    return torch.cat([as_real(tensor).reshape(-1).double().cpu() for tensor in tensors])
