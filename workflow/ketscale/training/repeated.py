"""Training steps whose calls of compiled code are recorded once and then made again, without the Python between them.

A step is recorded if nothing but such calls computes it, so a repeated one has the same bits. It is recorded anew when
something has changed that it depends on: an attribute of a module, a hook, the place of a parameter, the number of
threads.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ketscale.engines.randomness import DeviceStep, Step
from ketscale.engines.recorded import Recording, recording
from ketscale.engines.vjp import watchers
from ketscale.problems.problem import Problem
from ketscale.spans import active
from ketscale.training.direct import Direct
from ketscale.training.flat import Flat

# What torch may be asked for in between: new memory; facts; and what of a tensor's own memory it gives in another shape.
MEMORY = {"empty", "empty_like", "new_empty"}
FACTS = {
    "__len__", "_set_grad_enabled", "data_ptr", "dim", "element_size", "is_contiguous", "numel", "size", "stride",
}  # fmt: skip
VIEWS = {
    "__get__", "__getitem__", "contiguous", "expand", "flatten", "resolve_conj", "to", "unflatten", "unsqueeze", "view", "view_as",
}  # fmt: skip
# Steps with a known pull that are taken before one is recorded, and how many recordings are made at most.
BEFORE, MOST = 2, 8


class Repeated:
    """Takes the steps of a problem, or of a stack's template, that `direct` can take: the same calls again and again.

    direct: None if steps are not to be recorded.
    """

    def __init__(self, problem: Problem, flat: Flat, direct: Direct | None) -> None:
        self._problem, self._flat, self._direct = problem, flat, direct
        # By the indices' shape and the pull's place.
        self._recorded: dict[tuple[torch.Size, int], _Recorded] = {}
        self._seen: dict[tuple[torch.Size, int], int] = {}
        self._left = MOST

    def sums(self, indices: torch.Tensor, step: Step, pull: torch.Tensor | None) -> torch.Tensor | None:
        """The sums of a step, with the gradients in their slots; None if the step is to be taken in another way.

        pull: the gradient of the loss by the sums, at the same place in every step; None if it is not known yet.
        """
        if self._direct is None or pull is None or not isinstance(step, int) or active() is not None:
            return None
        kind = indices.shape, pull.data_ptr()
        found = self._recorded.get(kind)
        if found is not None:
            if found.holds():
                return found.sums(indices, step)
            del self._recorded[kind]
        self._seen[kind] = seen = self._seen.get(kind, 0) + 1
        if seen <= BEFORE or not self._left:
            return None
        self._left -= 1
        made = _Recorded(self._problem, self._flat)
        sums = made.record(self._direct, indices, step, pull)
        if made.calls.whole and sums is not None:
            self._recorded[kind] = made
        return sums


class _Recorded:
    """The calls of a step, and what they depend on."""

    def __init__(self, problem: Problem, flat: Flat) -> None:
        modules = list(problem.modules())
        self._modules = modules
        parts = ((m.__dict__, m._parameters, m._buffers, m._modules) for m in modules)
        self._attributes: list[dict[str, Any]] = [part for part in chain(*parts) if part]
        self._hooks = tuple(chain(*(watchers(module)[:4] for module in modules)))
        self._tensors = [*flat.leaves, flat.gradients]
        # What is kept has no other's identity.
        self._kept = list(chain(*(part.values() for part in self._attributes)))
        self._state = self._now()
        self.calls = Recording()

    def _now(self) -> tuple[Any, ...]:
        attributes = [*map(id, chain.from_iterable(map(dict.values, self._attributes)))]
        places = [tensor.data_ptr() for tensor in self._tensors]
        kinds = [*map(type, self._modules)]
        return attributes, kinds, places, any(self._hooks), torch.get_num_threads()

    def holds(self) -> bool:
        """Whether a step would still be these calls."""
        return self._now() == self._state

    def record(
        self, direct: Direct, indices: torch.Tensor, step: int, pull: torch.Tensor
    ) -> torch.Tensor | None:
        """Take a step and record it: its sums, None if `direct` cannot take it."""
        self._indices, self._step = indices.clone(), DeviceStep(indices.device)
        self._step.set(step)
        with recording() as self.calls, _Watching(self.calls):
            found = direct.sums(self._indices, self._step)
            if found is not None:
                direct.back(found, pull)
        if found is None:
            return None
        self._sums = found.value
        return self._sums.clone()

    def sums(self, indices: torch.Tensor, step: int) -> torch.Tensor:
        """Take a step by the same calls."""
        self._indices.copy_(indices)
        self._step.set(step)
        self.calls.run()
        return self._sums.clone()


class _Watching(TorchFunctionMode):
    """Keeps what torch gives in a step that is recorded, and notes if it computes."""

    def __init__(self, calls: Recording) -> None:
        super().__init__()
        self._calls = calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self._calls.keep(made)
        name = func.__name__
        if name in VIEWS and isinstance(made, torch.Tensor):
            same = made.untyped_storage().data_ptr() == args[0].untyped_storage().data_ptr()
        else:
            same = name in VIEWS or name in MEMORY or name in FACTS
        self._calls.whole = self._calls.whole and same
        return made
