"""Linear layers with ReLU and dropout between them: one operator in a training step on a CPU.

Around matrices of a small model's size, torch's operators take longer than their arithmetic. `dense_kernels` has the code.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn

from ketscale.engines import randomness
from ketscale.engines.compiled.kernel import threads_for
from ketscale.engines.compiled.language import COUNTERS, NEXT_TASK
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.members import at_once, only_mapped
from ketscale.engines.randomness import Step
from ketscale.engines.vjp import VJP, Slots, vjp_of, watchers
from ketscale.layers.dense_kernels import ARGUMENTS, FIELDS, TASK_ROWS, compiled
from ketscale.layers.dropout import MASKS, UNNAMED, SampleDropout
from ketscale.layers.masks import LANES
from ketscale.layers.stacked_linear import StackedLinear
from ketscale.private_torch import transforms_active

# The layers of a `Dense`, whose kinds are known.
Layers: TypeAlias = tuple[Any, ...]

# Multiply-adds for each thread. With fewer, a step is faster on one thread.
WORK_PER_THREAD = 16_000_000


class _Drawn(NamedTuple):
    """What the masks are drawn for: the seeds of all runs; see `randomness.DrawnFor`."""

    seeds: Sequence[int]
    step: Step
    samples: torch.Tensor


class _Given(NamedTuple):
    """What a pass works with. seed: of one run, or of each."""

    form: _Form
    parameters: list[Any]
    seed: Any
    step: Step
    samples: torch.Tensor


class Dense(nn.Sequential):
    """Layers of a `torch.nn.Sequential`, with the same numbers to rounding.

    [Linear, ReLU, SampleDropout] any number of times, then Linear, then Tanh or not, are one operator in a training step
    on a CPU, of one run or of a stack.
    """

    # The layers that `_fits` was asked about, its answer, and what has something in it if one of them is watched.
    _asked: tuple[tuple[nn.Module, ...], bool, tuple[Any, ...]] = ((), False, ())

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The last layer's outputs (batch, outputs) for inputs (batch, inputs)."""
        mapped = transforms_active()
        given = None if mapped and not only_mapped() else self._given(input)
        if given is None:
            return super().forward(input)
        form, parameters, seed, step, samples = given
        if not mapped:
            result: torch.Tensor = _Dense.apply(input, _Drawn([seed], step, samples), form, *parameters)
            return result

        def of_runs(
            x: torch.Tensor, ids: torch.Tensor, seeds: torch.Tensor, *own: torch.Tensor
        ) -> torch.Tensor:
            made: torch.Tensor = _Dense.apply(x, _Drawn(seeds.tolist(), step, ids), form, *own)
            return made

        return at_once(of_runs, input, samples, seed, *parameters)

    @vjp_of(forward)
    def vjp(self, input: torch.Tensor, to_input: bool) -> VJP | None:
        """`forward`, see `engines.vjp`; None where it is not one operator. Inputs may be (runs, batch, inputs).

        to_input: whether the gradient by the inputs is wanted.
        """
        given = self._given(input)
        if given is None:
            return None
        form, parameters, seed, step, samples = given
        memory = _memory(_sizes(input, form, parameters))
        seeds = [seed] if isinstance(seed, int) else seed
        made = memory.forward(input, _Drawn(seeds, step, samples), parameters)

        def back(cotangent: torch.Tensor, slots: Slots) -> torch.Tensor | None:
            to_x = memory.back(cotangent, [slots.slot(parameter) for parameter in parameters], to_input)
            memory.free()
            return to_x

        return VJP(made, back)

    def _given(self, x: torch.Tensor) -> _Given | None:
        """What the operator works with; None where there is none."""
        key = randomness.current()
        if (
            key is None
            or not self.training
            or not x.is_cpu
            or x.dim() not in (2, 3)
            or not x.shape[-2]
            or torch.is_autocast_enabled("cpu")
        ):
            return None
        layers: Layers = tuple(self._modules.values())
        if self._asked[0] != layers:
            self._asked = layers, _fits(layers), tuple(itertools.chain(*map(watchers, layers)))
        _, fits, watching = self._asked
        if not fits or any(watching):
            return None
        parameters = [tensor for layer in layers[::3] for tensor in layer._parameters.values()]
        if key.samples.shape != x.shape[:-1] or not _agree(x, parameters):
            return None
        dropouts = tuple([(layer.number, layer.p) for layer in layers[2::3]])
        return _Given(_Form(dropouts, len(layers) % 3 == 2), parameters, key.seed, key.step, key.samples)


def _agree(x: torch.Tensor, parameters: list[Any]) -> bool:
    """Whether compiled code, which takes them at their word, may read inputs and parameters of these shapes."""
    dtype, dimensions, width = x.dtype, x.dim(), x.shape[-1]
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        shape = weight.shape
        if (
            weight.dtype != dtype
            or bias.dtype != dtype
            or len(shape) != dimensions
            or shape[-1] != width
            or bias.shape != shape[:-1]
        ):
            return False
        width = shape[-2]
    return True


def _fits(layers: Layers) -> bool:
    """Whether the operator has these layers, with biases, in one precision."""
    hidden, rest = divmod(len(layers), 3)
    kinds = [*(nn.Linear, nn.ReLU, SampleDropout) * hidden, nn.Linear, *[nn.Tanh] * (rest - 1)]
    found = [nn.Linear if type(layer) is StackedLinear else type(layer) for layer in layers]
    linear: Sequence[Any] = layers[::3]
    return (
        found == kinds
        and all(set(layer._parameters) == {"weight", "bias"} and layer.bias is not None for layer in linear)
        and all(layer.bias.stride(-1) == 1 for layer in linear)
        and all(layer.out_features % LANES == 0 for layer in linear[:-1])
        and linear[0].weight.dtype in (torch.float32, torch.float64)
        and len({parameter.dtype for layer in linear for parameter in layer.parameters()}) == 1
    )


class _Form(NamedTuple):
    """The numbers of the dropouts, in turn, with their probabilities of 0; and whether tanh follows."""

    dropouts: tuple[tuple[int | None, float], ...]
    tanh: bool


class _Dense(torch.autograd.Function):
    """x (n, inputs), samples (n,) and weights as in torch.nn.Linear; of several runs all have a first dimension."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, drawn: _Drawn, form: _Form, *parameters: torch.Tensor
    ) -> torch.Tensor:
        ctx.memory = _Memory(_sizes(x, form, parameters))
        ctx.save_for_backward(x, *parameters)
        return ctx.memory.forward(x, drawn, parameters)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        first_derivatives_only("a step through dense layers")
        _, *parameters = ctx.saved_tensors
        into = [
            torch.empty_like(parameter, memory_format=torch.contiguous_format) for parameter in parameters
        ]
        return ctx.memory.back(cotangent, into, ctx.needs_input_grad[0]), None, None, *into


class _Sizes(NamedTuple):
    """What a `_Memory` is made for. widths: of the inputs and each layer's outputs."""

    runs: int
    rows: int
    widths: tuple[int, ...]
    form: _Form
    dtype: torch.dtype
    threads: int


def _sizes(x: torch.Tensor, form: _Form, parameters: Sequence[torch.Tensor]) -> _Sizes:
    *runs, rows, inputs = x.shape
    widths = (inputs, *[weight.shape[-2] for weight in parameters[::2]])
    return _Sizes(runs[0] if runs else 1, rows, widths, form, x.dtype, torch.get_num_threads())


class _Memory:
    """What one pass through the layers and back needs: hidden values and their gradients, and the code's arguments."""

    def __init__(self, sizes: _Sizes) -> None:
        self._sizes = runs, rows, widths, form, dtype, _ = sizes
        self._library, tile = compiled(dtype)
        every = runs * rows
        pairs = list(itertools.pairwise(widths))
        padded = [runs * -(-outputs // LANES) * LANES * inputs for inputs, outputs in pairs]
        self._hidden = torch.empty(every * sum(widths[1:-1]), dtype=dtype)
        # With the gradients by the outputs of all layers.
        self._parts = torch.empty(every * sum(widths[1:]), dtype=dtype)
        self._turned = torch.empty(sum(padded), dtype=dtype)
        hidden, part, turned = (t.data_ptr() for t in (self._hidden, self._parts, self._turned))
        self._table = array("q")
        source = to_source = 0
        last = len(pairs) - 1
        dropouts = [*form.dropouts, (0, 0.0)]
        for number, ((inputs, outputs), (name, p)) in enumerate(zip(pairs, dropouts, strict=True)):
            made = hidden if number < last else 0
            if name is None:
                raise RuntimeError(UNNAMED)
            # fmt: off
            self._table.extend((
                inputs, outputs, randomness.signed(name), randomness.least(p), turned, source, made, 0, 0, 0, 0,
                to_source, part, 0, 0, 0, 0,
            ))
            # fmt: on
            source, to_source = made, part
            size = every * outputs * dtype.itemsize
            hidden, part, turned = hidden + size, part + size, turned + padded[number] * dtype.itemsize
        self._scales = array("d", [1 / (1 - p) for _, p in dropouts])
        self._starts = array("q", [0] * runs)
        arrays = [each.buffer_info()[0] for each in (self._table, self._scales, self._starts)]
        work = every * sum(inputs * outputs for inputs, outputs in pairs)
        blocks = -(-rows // TASK_ROWS), -(-max(widths[:-1]) // (LANES * tile.vectors))
        by_rows, by_columns = (threads_for(runs * count, work, WORK_PER_THREAD) for count in blocks)
        self._threads = (
            {"write_turned": 1, "write_forward": by_rows},
            {"write_back": by_rows, "write_gradients": by_columns},
        )
        self._alone = by_rows == by_columns == 1
        # fmt: off
        self._arguments = array("q", (
            *[0] * COUNTERS, runs, rows, len(pairs), form.tanh, *blocks, 0, *arrays, 0, 0,
        ))
        # fmt: on
        self._address, _ = self._arguments.buffer_info()

    def forward(self, x: torch.Tensor, drawn: _Drawn, parameters: Sequence[torch.Tensor]) -> torch.Tensor:
        """The last layer's outputs."""
        sizes, (seeds, step, samples) = self._sizes, drawn
        x, samples = x.contiguous(), samples.contiguous()
        made = torch.empty((*x.shape[:-1], sizes.widths[-1]), dtype=sizes.dtype)
        # Rows must be side by side in each run.
        weights = [w if w.stride()[-2:] == (w.shape[-1], 1) else w.contiguous() for w in parameters[::2]]
        table, size = self._table, 8 * len(FIELDS)
        for number, (weight, bias) in enumerate(zip(weights, parameters[1::2], strict=True)):
            _pack_weights(
                table, number * size + WEIGHTS,
                weight.data_ptr(), weight.stride(0), bias.data_ptr(), bias.stride(0),
            )  # fmt: skip
        table[SOURCE], table[MADE - len(FIELDS)] = x.data_ptr(), made.data_ptr()
        for run, seed in enumerate(seeds):
            self._starts[run] = MASKS.start(seed)
        cell = array("q", [step]) if isinstance(step, int) else step.cell
        self._arguments[STEP], self._arguments[SAMPLES] = cell.buffer_info()[0], samples.data_ptr()
        # The addresses are of these tensors.
        self._kept: tuple[Any, ...] = x, weights, parameters, made, cell
        self._run("write_whole_forward", 0)
        return made

    def back(self, cotangent: torch.Tensor, into: Sequence[torch.Tensor], to_x: bool) -> torch.Tensor | None:
        """Put the gradients by weights and biases `into` their memory; that by the inputs if it is wanted."""
        cotangent = cotangent.contiguous()
        result = torch.empty_like(self._kept[0]) if to_x else None
        table, size = self._table, 8 * len(FIELDS)
        for number, (to_weight, to_bias) in enumerate(zip(into[::2], into[1::2], strict=True)):
            _pack_weights(
                table, number * size + GRADIENTS,
                to_weight.data_ptr(), to_weight.stride(0), to_bias.data_ptr(), to_bias.stride(0),
            )  # fmt: skip
        table[TO_SOURCE] = 0 if result is None else result.data_ptr()
        if self._sizes.form.tanh:
            self._arguments[COTANGENT] = cotangent.data_ptr()
        else:
            table[TO_MADE - len(FIELDS)] = cotangent.data_ptr()
        self._run("write_whole_back", 1)
        return result

    def free(self) -> None:
        """Let other passes have it."""
        self._kept = ()
        _free[self._sizes] = self
        while len(_free) > MOST_FREE:
            _free.pop(next(iter(_free)), None)

    def _run(self, whole: str, way: int) -> None:
        """Run a function on one thread, or its parts in turn on several."""
        arguments = self._arguments
        arguments[NEXT_TASK] = 0
        if self._alone:
            self._library.on_one_thread[whole](self._address)
            return
        for part, threads in self._threads[way].items():
            arguments[NEXT_TASK] = 0
            self._library.on_threads(part, self._address, threads)


# Places in the table and in the arguments, and how to fill in weights and biases, and the gradients by them.
SOURCE, MADE, TO_SOURCE, TO_MADE = map(FIELDS.index, ("source", "made", "to_source", "to_made"))
WEIGHTS, GRADIENTS = (8 * FIELDS.index(name) for name in ("weight", "to_weight"))
_NAMES = [name for names in ARGUMENTS for name in names.split()]
STEP, SAMPLES, COTANGENT = (COUNTERS + _NAMES.index(name) for name in ("step", "samples", "cotangent"))
_pack_weights = struct.Struct("4q").pack_into


# Memory that no pass uses, by what it was made for: of the sizes that were used last.
_free: dict[_Sizes, _Memory] = {}
MOST_FREE = 8


def _memory(sizes: _Sizes) -> _Memory:
    return _free.pop(sizes, None) or _Memory(sizes)


def tanh_vjp(x: torch.Tensor, weight: torch.Tensor) -> VJP:
    """tanh(x weight^T), see `engines.vjp`; x (n, inputs) and weight (outputs, inputs), or with a first dimension of runs."""
    bias, to_bias = _zeros(weight.shape[:-1], weight.dtype), weight.new_empty(weight.shape[:-1])
    memory = _memory(_sizes(x, _Form((), True), (weight, bias)))
    made = memory.forward(x, _Drawn((), 0, _NO_SAMPLES), (weight, bias))

    def back(cotangent: torch.Tensor, slots: Slots) -> torch.Tensor | None:
        to_x = memory.back(cotangent, (slots.slot(weight), to_bias), True)
        memory.free()
        return to_x

    return VJP(made, back)


_NO_SAMPLES = torch.empty(0, dtype=torch.int64)
# The biases of layers without.
_zeros = lru_cache(maxsize=64)(lambda shape, dtype: torch.zeros(shape, dtype=dtype))
