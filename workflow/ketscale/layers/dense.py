"""Linear layers with ReLU and dropout between them: one operator in a training step on a CPU.

Around matrices of a small model's size, torch's other operators take longer than the products.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn

from ketscale.engines import randomness
from ketscale.engines.compiled.kernel import Kernel
from ketscale.engines.compiled.language import (
    INTEGER,
    Arguments,
    FunctionCode,
    maximum,
    reals,
    select,
    vectors,
)
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.members import at_once, only_mapped
from ketscale.engines.vjp import VJP, Slots, vjp_of, watched
from ketscale.layers import masks
from ketscale.layers.dropout import SampleDropout
from ketscale.layers.masks import DRAWN, LANES, each_mask
from ketscale.layers.stacked_linear import StackedLinear
from ketscale.private_torch import transforms_active

# apart: how far the biases of runs are from each other.
ARGUMENTS = {
    **DRAWN,
    "values cotangent": vectors("all_rows", "vectors"),
    "apart": INTEGER,
    "bias to_bias": reals("runs", "apart"),
}


def write_hidden(k: FunctionCode, args: Arguments) -> None:
    """values <- mask * relu(values + bias), which leaves a NaN one."""
    with each_mask(k, args) as mask:
        place = mask.row, mask.vector
        bias = args.bias.part(mask.run, 1, element="vector")
        args.values[place] = maximum(0.0, args.values[place] + bias[mask.vector]) * mask.values


def write_gradients(k: FunctionCode, args: Arguments) -> None:
    """cotangent <- its part by the values before the bias; to_bias <- the sum over the rows. Nothing is drawn."""
    rows, scale = args.rows, args.scale.splat()
    total = k.variable(k.vector(0.0))
    # Threads share the columns.
    with k.tasks(args.runs * args.vectors) as column:
        run, vector = column // args.vectors, column % args.vectors
        total.value = k.vector(0.0)
        with k.loop(rows) as row:
            place = run * rows + row, vector
            # A value is not positive if its unit was off or its mask was 0.
            part = select(args.values[place] <= 0.0, 0.0, args.cotangent[place] * scale)
            args.cotangent[place] = part
            total.value += part
        args.to_bias.part(run, 1, element="vector")[vector] = total.value


# The layers of a `Dense`, whose kinds are known.
Layers: TypeAlias = tuple[Any, ...]


class _Given(NamedTuple):
    """The layers, and the key of their masks; see `randomness.DrawnFor`."""

    layers: Layers
    seed: Any
    step: int
    samples: torch.Tensor


class Dense(nn.Sequential):
    """Layers of a `torch.nn.Sequential`, with the same numbers to rounding.

    [Linear, ReLU, SampleDropout] any number of times, then Linear, then Tanh or not, are one operator in a training step
    on a CPU, of one run or of a stack.
    """

    # The layers that `_fits` was asked about, and its answer.
    _asked: tuple[tuple[nn.Module, ...], bool] = ((), False)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The last layer's outputs (batch, outputs) for inputs (batch, inputs)."""
        mapped = transforms_active()
        given = None if mapped and not only_mapped() else self._given(input)
        if given is None:
            return super().forward(input)
        layers, seed, step, samples = given
        parameters = _parameters(layers)
        if not mapped:
            form = _form(layers, seed, step)
            result: torch.Tensor = _Dense.apply(input, samples, form, *parameters)
            return result

        def of_runs(
            x: torch.Tensor, ids: torch.Tensor, seeds: torch.Tensor, *own: torch.Tensor
        ) -> torch.Tensor:
            made: torch.Tensor = _Dense.apply(x, ids, _form(layers, seeds.tolist(), step), *own)
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
        layers, seed, step, samples = given
        form, parameters = _form(layers, seed, step), _parameters(layers)
        values = _values(input, samples, form, parameters)

        def back(cotangent: torch.Tensor, slots: Slots) -> torch.Tensor | None:
            into = [slots.slot(parameter) for parameter in parameters]
            return _gradients(cotangent, samples, form, parameters[::2], values, into, to_input)

        return VJP(values[-1], back)

    def _given(self, x: torch.Tensor) -> _Given | None:
        """What the operator works with; None where there is none."""
        key = randomness.current()
        if (
            key is None
            or not self.training
            or not isinstance(key.step, int)
            or not x.is_cpu
            or x.dim() not in (2, 3)
            or not x.shape[-2]
            or torch.is_autocast_enabled("cpu")
        ):
            return None
        layers = tuple(self._modules.values())
        if self._asked[0] != layers:
            self._asked = layers, _fits(layers)
        if not self._asked[1] or any(map(watched, layers)) or layers[0].weight.dtype != x.dtype:
            return None
        return _Given(layers, key.seed, key.step, key.samples)


def _fits(layers: Layers) -> bool:
    """Whether the operator has these layers, with biases, in one precision."""
    hidden, rest = divmod(len(layers), 3)
    kinds = [*(nn.Linear, nn.ReLU, SampleDropout) * hidden, nn.Linear, *[nn.Tanh] * (rest - 1)]
    found = [nn.Linear if type(layer) is StackedLinear else type(layer) for layer in layers]
    linear: Sequence[Any] = layers[::3]
    return (
        found == kinds
        and all(set(layer._parameters) == {"weight", "bias"} and layer.bias is not None for layer in linear)
        and all(layer.out_features % LANES == 0 and layer.bias.stride(-1) == 1 for layer in linear[:-1])
        and linear[0].weight.dtype in (torch.float32, torch.float64)
        and len({parameter.dtype for layer in linear for parameter in layer.parameters()}) == 1
    )


class _Form(NamedTuple):
    """The dropouts of a step, in turn: the key of each run's masks and the probability of 0; and whether tanh follows."""

    masks: list[tuple[list[int], float]]
    tanh: bool


def _form(layers: Layers, seed: int | Sequence[int], step: int) -> _Form:
    seeds = [seed] if isinstance(seed, int) else seed
    drawn = [([layer.key(seed, step) for seed in seeds], layer.p) for layer in layers[2::3]]
    return _Form(drawn, len(layers) % 3 == 2)


def _parameters(layers: Layers) -> list[Any]:
    """Weight and bias of each linear layer."""
    return [tensor for layer in layers[::3] for tensor in layer._parameters.values()]


class _Dense(torch.autograd.Function):
    """x (n, inputs), samples (n,) and weights as in torch.nn.Linear; of several runs all have a first dimension."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, samples: torch.Tensor, form: _Form, *parameters: torch.Tensor
    ) -> torch.Tensor:
        values = _values(x, samples, form, parameters)
        ctx.save_for_backward(samples, *values, *parameters[::2])
        ctx.form = form
        return values[-1]

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        first_derivatives_only("a step through dense layers")
        samples, *saved = ctx.saved_tensors
        layers = len(saved) // 2
        values, weights = saved[: layers + 1], saved[layers + 1 :]
        runs = cotangent.shape[:-2]
        into = [
            cotangent.new_empty(shape)
            for weight in weights
            for shape in (weight.shape, (*runs, weight.shape[-2]))
        ]
        to_x = _gradients(cotangent, samples, ctx.form, weights, values, into, ctx.needs_input_grad[0])
        return to_x, None, None, *into


def _values(
    x: torch.Tensor, samples: torch.Tensor, form: _Form, parameters: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The inputs and each layer's outputs, after their dropout or tanh."""
    kernel, values = _kernel(x.dtype), [x]
    for place, (keys, p) in enumerate(form.masks):
        weight, bias = parameters[2 * place : 2 * place + 2]
        made = torch.matmul(values[-1], weight.mT)
        # fmt: off
        masks.call(
            kernel, "write_hidden", samples, keys, p, made.shape[-1], values=made, bias=bias, apart=bias.stride(0),
        )
        # fmt: on
        values.append(made)
    weight, bias = parameters[-2:]
    if x.dim() == 2:
        result = torch.addmm(bias, values[-1], weight.t())
    else:
        result = torch.baddbmm(bias.unsqueeze(1), values[-1], weight.mT)
    values.append(result.tanh_() if form.tanh else result)
    return values


def _gradients(
    cotangent: torch.Tensor,
    samples: torch.Tensor,
    form: _Form,
    weights: Sequence[torch.Tensor],
    values: Sequence[torch.Tensor],
    into: Sequence[torch.Tensor],
    to_x: bool,
) -> torch.Tensor | None:
    """Put the gradients of each layer's weight and bias `into` their memory; that by the inputs if it is wanted."""
    kernel = _kernel(cotangent.dtype)
    if form.tanh:
        cotangent = torch.ops.aten.tanh_backward(cotangent, values[-1])
    torch.sum(cotangent, -2, out=into[-1])
    torch.matmul(cotangent.mT, values[-2], out=into[-2])
    for place in range(len(form.masks) - 1, -1, -1):
        keys, p = form.masks[place]
        cotangent = torch.matmul(cotangent, weights[place + 1])
        # The gradients by the values before the bias, in place, and their sum over the samples.
        to_bias = into[2 * place + 1]
        # fmt: off
        masks.call(
            kernel, "write_gradients", samples, keys, p, cotangent.shape[-1],
            cotangent=cotangent, values=values[place + 1], to_bias=to_bias, apart=to_bias.stride(0),
        )
        # fmt: on
        torch.matmul(cotangent.mT, values[place], out=into[2 * place])
    return torch.matmul(cotangent, weights[0]) if to_x else None


@cache
def _kernel(dtype: torch.dtype) -> Kernel:
    functions, sources = (write_hidden, write_gradients), (masks, randomness)
    return Kernel(functions, ARGUMENTS, dtype, LANES, sources=sources)
