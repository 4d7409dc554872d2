"""The compiled code of a summed cross-entropy and its gradient, for `cross_entropy`.

The lanes of a vector hold samples.
"""

from __future__ import annotations

from ketscale.engines.compiled.functions import exp, log
from ketscale.engines.compiled.language import (
    INTEGER,
    Arguments,
    Code,
    ceil_divided,
    fma,
    integers,
    is_nan,
    lane_sum,
    maximum,
    reals,
    select,
)

LANES = 16
INFINITY, NAN = float("inf"), float("nan")
ARGUMENTS = {
    "runs rows classes": INTEGER,
    "logits gradient": reals("runs", "rows", "classes"),
    "labels": integers("runs", "rows"),
    "sums": reals("runs"),
}


def summed(k: Code, args: Arguments) -> None:
    """sums <- sum of log(sum(exp(logits))) - the label's logit; gradient <- softmax(logits) - 1 at the label."""
    zero = k.vector(0.0)
    total, highest, weight, own, spoilt = (k.variable(zero) for _ in range(5))
    with k.loop(args.runs) as run:
        total.value = zero
        with k.loop(ceil_divided(args.rows, LANES)) as group:
            # Lanes beyond the last row repeat it, and do not count.
            rows, counted = k.lanes_of(group, args.rows)
            logits, gradient, label = args.logits[run, rows], args.gradient[run, rows], args.labels[run, rows]
            highest.value, weight.value, own.value, spoilt.value = k.vector(-INFINITY), zero, zero, zero
            with k.loop(args.classes) as index:
                value = logits[index]
                highest.value = maximum(value, highest.value)
                # `exp` and `maximum` do not pass these on.
                spoilt.value = select(is_nan(value) | (value == INFINITY), NAN, spoilt.value)
            spoilt.value = select(highest.value == -INFINITY, NAN, spoilt.value)
            with k.loop(args.classes) as index:
                value = logits[index] - highest.value
                weight.value += exp(value)
                own.value = select(label == index, value, own.value)
            loss = log(weight.value) - own.value + spoilt.value
            total.value += select(counted, loss, 0.0)
            share = 1.0 / weight.value
            with k.loop(args.classes) as index:
                value = exp(logits[index] - highest.value)
                at_label = select(label == index, spoilt.value - 1.0, spoilt.value)
                gradient[index] = fma(value, share, at_label)
        args.sums[run] = lane_sum(total.value).lane(0)
