"""The compiled code of a hidden layer behind its matrix product, for `dense`.

The lanes of a vector hold columns.
"""

from __future__ import annotations

from ketscale.engines.compiled.language import INTEGER, Arguments, Code, maximum, reals, select, vectors
from ketscale.layers.mask_kernels import DRAWN, each_mask

# apart: how far the biases of runs are from each other.
ARGUMENTS = {
    **DRAWN,
    "values cotangent": vectors("all_rows", "vectors"),
    "apart": INTEGER,
    "bias to_bias": reals("runs", "apart"),
}


def forward(k: Code, args: Arguments) -> None:
    """values <- mask * relu(values + bias), which leaves a NaN one."""
    with each_mask(k, args) as mask:
        place = mask.row, mask.vector
        bias = args.bias.part(mask.run, 1, element="vector")
        args.values[place] = maximum(0.0, args.values[place] + bias[mask.vector]) * mask.values


def backward(k: Code, args: Arguments) -> None:
    """cotangent <- its part by the values before the bias; to_bias <- the sum over the rows. Nothing is drawn."""
    rows, scale = args.rows, args.scale.splat()
    total = k.variable(k.vector(0.0))
    # Threads share the columns.
    with k.tasks(args.runs * args.vectors) as column:
        run, vector = column // args.vectors, column % args.vectors
        total.value = k.vector(0.0)
        with k.loop(rows) as row:
            place = run * rows + row, vector
            # Where a value is not positive, its unit was off or its mask was 0.
            part = select(args.values[place] <= 0.0, 0.0, args.cotangent[place] * scale)
            args.cotangent[place] = part
            total.value += part
        args.to_bias.part(run, 1, element="vector")[vector] = total.value
