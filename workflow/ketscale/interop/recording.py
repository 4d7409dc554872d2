"""Records of how a tape's numbers come from tensors, one for each set of shapes, and compared.

What is recorded is a function of tensors that gives a tape's `Structure` and its numbers. It runs once in a `Recorder`,
and every later call replays the record alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ketscale.engines.circuits.simulator import Simulator
from ketscale.errors import UserError
from ketscale.interop.recorder import Looked, Recorder, continuous
from ketscale.interop.replay import Replay, Structure
from ketscale.interop.tape import LOCK

# From arguments to what is recorded.
Run = Callable[[Sequence[torch.Tensor]], tuple[Structure, list[torch.Tensor]]]

# More shapes than any program has.
MOST_WAYS = 256


class Records:
    """The records of one function, by its shapes and whatever else is in a key.

    simulator: evaluates them. dtype: of their results, None for the arguments'.
    """

    def __init__(self, simulator: Simulator, dtype: torch.dtype | None = None) -> None:
        self._simulator = simulator
        self._dtype = dtype
        self.ways: dict[object, Replay] = {}

    def record(
        self, key: object, tensors: Sequence[torch.Tensor], captured: Sequence[torch.Tensor], run: Run
    ) -> Replay:
        """The record for tensors of these shapes, made now if there is none.

        tensors: the arguments of `run`. captured: what it reads besides.

        Raises:
            UserError: the function cannot be recorded.
        """
        # As PennyLane, torch records for one thread at a time.
        with LOCK, torch.inference_mode(False):
            way = self.ways.get(key)
            if way is None:
                way = self._recorded(tensors, captured, run)
                keep(self.ways, key, way)
        return way

    def check(
        self, way: Replay, tensors: Sequence[torch.Tensor], captured: Sequence[torch.Tensor], run: Run
    ) -> None:
        """Compare a record with the function where tensors have values at which it was not compared.

        Raises:
            UserError: they differ, as they do if numbers take a way that torch does not see.
        """
        inputs = [*tensors, *captured]
        changed = {n for n, value in [*way.traced.items()] if not torch.equal(value, inputs[n])}
        if changed:
            with LOCK:
                _compare(way, tensors, captured, run)
            # Once an argument changed, no argument is compared any more.
            for number in changed | {*range(len(tensors) if min(changed) < len(tensors) else 0)}:
                way.traced.pop(number, None)

    def _recorded(
        self, tensors: Sequence[torch.Tensor], captured: Sequence[torch.Tensor], run: Run
    ) -> Replay:
        """Run the function once, on tensors that torch records."""
        tensors = [tensor.detach().clone() for tensor in tensors]
        inputs = [tensor.clone() for tensor in tensors]
        recorder = Recorder(inputs, captured)
        try:
            with recorder:
                structure, values = run(inputs)
        except Looked as error:
            # If PennyLane looks only to say what is wrong, it says so now.
            run(tensors)
            raise UserError(
                "from_qnode: the quantum function, or the decomposition of one of its operations, looks at the value of a "
                "tensor: write from_qnode(qnode, trace='always'), and keep what is differentiated a tensor, since a number that is "
                "taken out of one (.item(), float()) has no gradient"
            ) from error
        graph = recorder.record(values)
        way = Replay(structure, graph, [*tensors, *captured], len(tensors), self._simulator, self._dtype)
        _compare(way, tensors, captured, run)
        shifted = list(map(_shifted, tensors))
        try:
            run(shifted)
        except UserError:
            raise
        except Exception:
            # The function cannot run there, whatever the reason, such as a state that is not normalised any more.
            return way
        _compare(way, shifted, captured, run)
        return way


def keep(table: dict[object, Any], key: object, value: Any) -> None:
    """Put something into a dictionary that forgets the oldest."""
    if key not in table and len(table) >= MOST_WAYS:
        del table[next(iter(table))]
    table[key] = value


def _shifted(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with every entry a little elsewhere, the same at every call."""
    if not tensor.is_floating_point():
        return tensor
    noise = torch.rand(tensor.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return tensor + (0.01 + 0.1 * noise).to(tensor)


def _compare(
    way: Replay, tensors: Sequence[torch.Tensor], captured: Sequence[torch.Tensor], run: Run
) -> None:
    """Compare the record with the function itself, in values and gradients.

    Raises:
        UserError: they differ.
    """
    with torch.inference_mode(False), torch.enable_grad():
        fresh = [tensor.detach().clone().requires_grad_(continuous(tensor)) for tensor in tensors]
        structure, values = run(fresh)
        inputs = [*fresh, *captured]
        replayed = way.numbers(inputs)
        trainable = [tensor for tensor in inputs if tensor.requires_grad]
        if structure.same(way.structure) and all(
            torch.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True)
            for pair in ((values, replayed), (_slopes(values, trainable), _slopes(replayed, trainable)))
            for a, b in zip(*pair, strict=True)
        ):
            return
    raise UserError(
        "from_qnode: the circuit changes with its arguments, or with random numbers, in a way that torch cannot follow, "
        "such as NumPy or .tolist(): use torch's functions, or write from_qnode(qnode, trace='always')"
    )


def _slopes(values: Sequence[torch.Tensor], trainable: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """The gradients of a sum of all values with factors that differ."""
    terms = [
        ((number + 1) * value.flatten() * torch.arange(1, value.numel() + 1, device=value.device)).sum().real
        for number, value in enumerate(values)
        if value.requires_grad
    ]
    if not terms:
        return [torch.zeros_like(tensor) for tensor in trainable]
    return torch.autograd.grad(terms, trainable, allow_unused=True, materialize_grads=True)
