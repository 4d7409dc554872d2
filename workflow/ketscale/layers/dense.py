"""Linear layers with ReLU and dropout between them: one operator in a training step on a CPU.

Around matrices of a small model's size, torch's operators take longer than their arithmetic. `dense_kernels` has the code.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn

from ketscale.autograd_function import at_once
from ketscale.engines import randomness
from ketscale.engines.compiled.kernel import threads_for
from ketscale.engines.compiled.language import COUNTERS, NEXT_TASK
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.randomness import Draws
from ketscale.engines.vjp import VJP, Slots, vjp_of, watchers
from ketscale.layers.dense_kernels import ARGUMENTS, FIELDS, TASK_ROWS, compiled
from ketscale.layers.dropout import MASKS, UNNAMED, SampleDropout
from ketscale.layers.masks import LANES
from ketscale.private_torch import only_mapped, transforms_active

# The layers of a `Dense`, whose kinds are known.
Layers: TypeAlias = tuple[Any, ...]

# Multiply-adds for each thread. With fewer, a step is faster on one thread.
WORK_PER_THREAD = 16_000_000


class _Sizes(NamedTuple):
    """What a pass is made for.

    shape: of the inputs, (rows, inputs) or (runs, rows, inputs). widths: of each layer's outputs. dropouts: their numbers,
    with their probabilities of 0. tanh: whether it follows.
    """

    shape: torch.Size
    widths: tuple[int, ...]
    dropouts: tuple[tuple[int | None, float], ...]
    tanh: bool
    dtype: torch.dtype
    threads: int


class Dense(nn.Sequential):
    """Layers of a `torch.nn.Sequential`, with the same numbers to rounding.

    [Linear, ReLU, SampleDropout] any number of times, then Linear, then Tanh or not, are one operator in a training step
    on a CPU, of one run or of a stack.
    """

    # The layers that `_fits` was asked about, its answer, and what has something in it if one of them is watched.
    _checks: tuple[tuple[nn.Module, ...], bool, tuple[Any, ...]] = ((), False, ())

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The last layer's outputs (batch, outputs) for inputs (batch, inputs)."""
        mapped = transforms_active()
        plan = None if mapped and not only_mapped() else self._plan(input)
        if plan is None:
            return super().forward(input)
        sizes, parameters, masks = plan
        if not mapped:
            result: torch.Tensor = _Dense.apply(input, masks, sizes, *parameters)
            return result

        def of_runs(
            x: torch.Tensor, samples: torch.Tensor, seeds: torch.Tensor, *own: torch.Tensor
        ) -> torch.Tensor:
            every = masks._replace(seed=seeds.tolist(), samples=samples)
            values: torch.Tensor = _Dense.apply(x, every, sizes._replace(shape=x.shape), *own)
            return values

        return at_once(of_runs, input, masks.samples, masks.seed, *parameters)

    @vjp_of(forward)
    def vjp(self, input: torch.Tensor, to_input: bool) -> VJP | None:
        """`forward`, see `engines.vjp`; None where it is not one operator. Inputs may be (runs, batch, inputs).

        to_input: whether the gradient by the inputs is wanted.
        """
        plan = self._plan(input)
        if plan is None:
            return None
        sizes, parameters, masks = plan
        return _vjp(sizes, input, masks, parameters, lambda slots: [*map(slots.slot, parameters)], to_input)

    def _plan(self, x: torch.Tensor) -> tuple[_Sizes, list[Any], Draws] | None:
        """What the operator works with: sizes, parameters, and what masks are drawn for; None where there is none."""
        current, shape = randomness.current(), x.shape
        if (
            current is None
            or not self.training
            or not x.is_cpu
            or x.dtype not in (torch.float32, torch.float64)
            or len(shape) not in (2, 3)
            or not shape[-2]
            or current.samples.shape != shape[:-1]
            or torch.is_autocast_enabled("cpu")
        ):
            return None
        layers: Layers = tuple(self._modules.values())
        if self._checks[0] != layers:
            self._checks = layers, _fits(layers), tuple(itertools.chain(*map(watchers, layers)))
        _, fits, watching = self._checks
        if not fits or any(watching):
            return None
        parameters = [tensor for layer in layers[::3] for tensor in layer._parameters.values()]
        widths = _widths(shape, x.dtype, parameters)
        if widths is None:
            return None
        dropouts = tuple([(layer.number, layer.p) for layer in layers[2::3]])
        tanh = len(layers) % 3 == 2
        return _Sizes(shape, widths, dropouts, tanh, x.dtype, torch.get_num_threads()), parameters, current


def _widths(shape: torch.Size, dtype: torch.dtype, parameters: list[Any]) -> tuple[int, ...] | None:
    """How many outputs each layer has; None where compiled code, which does not check shapes, may not read them."""
    widths, width = [], shape[-1]
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        if bias is None:
            return None
        own = weight.shape
        if (
            len(own) != len(shape)
            or own[-1] != width
            or bias.shape != own[:-1]
            or weight.dtype != dtype
            or bias.dtype != dtype
        ):
            return None
        width = own[-2]
        widths.append(width)
    return tuple(widths)


def _fits(layers: Layers) -> bool:
    """Whether the operator has these layers, with biases."""
    hidden, rest = divmod(len(layers), 3)
    kinds = [*(nn.Linear, nn.ReLU, SampleDropout) * hidden, nn.Linear, *[nn.Tanh] * (rest - 1)]
    linear: Sequence[Any] = layers[::3]
    return (
        [*map(type, layers)] == kinds
        and all(set(layer._parameters) == {"weight", "bias"} and layer.bias is not None for layer in linear)
        and all(layer.bias.stride(-1) == 1 for layer in linear)
        and all(layer.out_features % LANES == 0 for layer in linear[:-1])
    )


class _Dense(torch.autograd.Function):
    """x (n, inputs), samples (n,) and weights as in torch.nn.Linear; of several runs all have a first dimension."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, masks: Draws, sizes: _Sizes, *parameters: torch.Tensor
    ) -> torch.Tensor:
        ctx.own = _Pass(sizes)
        ctx.save_for_backward(x, *parameters)
        return ctx.own.forward(x, masks, parameters)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        first_derivatives_only("a step through dense layers")
        _, *parameters = ctx.saved_tensors
        into = [
            torch.empty_like(parameter, memory_format=torch.contiguous_format) for parameter in parameters
        ]
        return ctx.own.back(cotangent, into, ctx.needs_input_grad[0]), None, None, *into


class _Pass:
    """What one way through the layers and back needs: hidden values and their gradients, and the code's arguments."""

    def __init__(self, sizes: _Sizes) -> None:
        self._sizes = sizes
        (*several, rows, inputs), widths, dropouts, tanh, dtype, _ = sizes
        self._library, tile = compiled(dtype)
        self._runs = runs = several[0] if several else 1
        every, size = runs * rows, dtype.itemsize
        pairs = list(itertools.pairwise((inputs, *widths)))
        padded = [runs * -(-outputs // LANES) * LANES * inputs for inputs, outputs in pairs]
        # Hidden values, the gradients by the outputs of all layers, and weights, turned about.
        counts = every * sum(widths[:-1]), every * sum(widths), sum(padded)
        self._memory = [torch.empty(count, dtype=dtype) for count in counts]
        hidden, part, turned = (memory.data_ptr() for memory in self._memory)
        self._table = array("q")
        source = to_source = 0
        dropouts = (*dropouts, (0, 0.0))
        for (inputs, outputs), (name, p), weights in zip(pairs, dropouts, padded, strict=True):
            if name is None:
                raise RuntimeError(UNNAMED)
            least = randomness.least(p)
            self._table.extend(
                (inputs, outputs, randomness.signed(name), least, turned, source, hidden, to_source, part)
            )
            source, to_source = hidden, part
            hidden, part = (place + every * outputs * size for place in (hidden, part))
            turned += weights * size
        self._scales = array("d", [1 / (1 - p) for _, p in dropouts])
        self._starts = array("q", [0] * runs)
        self._places = array("q", [0] * (8 * len(pairs)))
        arrays = (self._table, self._places, self._scales, self._starts)
        work = every * sum(inputs * outputs for inputs, outputs in pairs)
        blocks = -(-rows // TASK_ROWS), -(-max(inputs for inputs, _ in pairs) // (LANES * tile.vectors))
        by_rows, by_columns = (threads_for(runs * count, work, WORK_PER_THREAD) for count in blocks)
        self._threads = (
            {"write_transpose": 1, "write_forward": by_rows},
            {"write_back": by_rows, "write_gradients": by_columns},
        )
        self._single = by_rows == by_columns == 1
        numbers = (runs, rows, len(pairs), tanh, *blocks, 0, *(each.buffer_info()[0] for each in arrays))
        self._arguments = array("q", (*[0] * COUNTERS, *numbers, 0, 0))
        self._address, _ = self._arguments.buffer_info()

    def forward(self, x: torch.Tensor, masks: Draws, parameters: Sequence[torch.Tensor]) -> torch.Tensor:
        """The last layer's outputs."""
        sizes, seed = self._sizes, masks.seed
        x, samples = x.contiguous(), masks.samples.contiguous()
        values = torch.empty((*sizes.shape[:-1], sizes.widths[-1]), dtype=sizes.dtype)
        own = list(parameters)
        for place, weight in enumerate(own[::2]):
            # Rows must be side by side in each run.
            if weight.stride()[-2:] != (weight.shape[-1], 1):
                own[2 * place] = weight.contiguous()
        self._place(0, own)
        self._table[SOURCE], self._table[LAST + OUT] = x.data_ptr(), values.data_ptr()
        for run, each in enumerate([seed] if isinstance(seed, int) else seed):
            self._starts[run] = MASKS.start(each)
        self._arguments[STEP], self._arguments[SAMPLES] = int(masks.step), samples.data_ptr()
        # The addresses are of these tensors.
        self._saved: tuple[Any, ...] = x, samples, own, values
        self._run("write_all_forward", 0)
        return values

    def back(self, cotangent: torch.Tensor, into: Sequence[torch.Tensor], to_x: bool) -> torch.Tensor | None:
        """Put the gradients by weights and biases `into` their memory; that by the inputs if it is wanted."""
        cotangent = cotangent.contiguous()
        result = torch.empty_like(self._saved[0]) if to_x else None
        self._place(2, into)
        self._table[TO_SOURCE] = 0 if result is None else result.data_ptr()
        if self._sizes.tanh:
            self._arguments[COTANGENT] = cotangent.data_ptr()
        else:
            self._table[LAST + TO_OUT] = cotangent.data_ptr()
        self._run("write_all_back", 1)
        return result

    def free(self) -> None:
        """Let other passes have it."""
        self._saved = ()
        _free[self._sizes] = self
        while len(_free) > MOST_FREE:
            _free.pop(next(iter(_free)), None)

    def _place(self, row: int, tensors: Sequence[torch.Tensor]) -> None:
        """Say where the weights and biases are, or the gradients by them, in two rows of `places`."""
        count = len(tensors)
        first = row * count
        self._places[first : first + count] = array("q", [tensor.data_ptr() for tensor in tensors])
        if self._runs > 1:
            self._places[first + count : first + 2 * count] = array(
                "q", [tensor.stride(0) for tensor in tensors]
            )

    def _run(self, name: str, way: int) -> None:
        """Run a function on one thread, or its parts in turn on several."""
        self._arguments[NEXT_TASK] = 0
        if self._single:
            self._library.on_one_thread[name](self._address)
            return
        for part, threads in self._threads[way].items():
            self._arguments[NEXT_TASK] = 0
            self._library.on_threads(part, self._address, threads)


# Places in the table, and in the arguments; the last layer's row is at LAST, from the end.
SOURCE, OUT, TO_SOURCE, TO_OUT = map(FIELDS.index, ("source", "out", "to_source", "to_out"))
LAST = -len(FIELDS)
_NAMES = " ".join(ARGUMENTS).split()
STEP, SAMPLES, COTANGENT = (COUNTERS + _NAMES.index(name) for name in ("step", "samples", "cotangent"))


# Memory that no pass uses, by what it was made for: of the sizes that were used last.
_free: dict[_Sizes, _Pass] = {}
MOST_FREE = 8


def _vjp(
    sizes: _Sizes,
    x: torch.Tensor,
    masks: Draws,
    parameters: Sequence[torch.Tensor],
    into: Callable[[Slots], Sequence[torch.Tensor]],
    to_input: bool,
) -> VJP:
    """The outputs and their pullback, which puts the gradients by the parameters `into` their memory."""
    own = _free.pop(sizes, None) or _Pass(sizes)
    values = own.forward(x, masks, parameters)

    def back(cotangent: torch.Tensor, slots: Slots) -> torch.Tensor | None:
        to_x = own.back(cotangent, into(slots), to_input)
        own.free()
        return to_x

    return VJP(values, back)


def tanh_vjp(x: torch.Tensor, weight: torch.Tensor) -> VJP:
    """tanh(x weight^T), see `engines.vjp`; x (n, inputs) and weight (outputs, inputs), or with a first dimension of runs."""
    bias, to_bias = _zeros(weight.shape[:-1], weight.dtype), weight.new_empty(weight.shape[:-1])
    sizes = _Sizes(x.shape, (weight.shape[-2],), (), True, x.dtype, torch.get_num_threads())
    return _vjp(
        sizes, x, _UNDRAWN, (weight, bias), lambda slots: (slots.slot(weight), to_bias), to_input=True
    )


_UNDRAWN = Draws((), 0, torch.empty(0, dtype=torch.int64), iter(()))
# The biases of layers without.
_zeros = lru_cache(maxsize=64)(lambda shape, dtype: torch.zeros(shape, dtype=dtype))
