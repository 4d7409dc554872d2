"""Code that runs once in each call: tables from the weights before the tiles, the weights' gradient after them."""

from __future__ import annotations

from ketscale.engines.circuits.fused.block import deposit
from ketscale.engines.circuits.fused.plan import SweepPlan
from ketscale.engines.circuits.fused.program import Angle
from ketscale.engines.circuits.fused.schedule import Phases
from ketscale.engines.compiled.functions import sincos
from ketscale.engines.compiled.language import Arguments, Buffer, FunctionCode, Number, Operand, fma


def prepare(k: FunctionCode, args: Arguments, plan: SweepPlan) -> None:
    """Cosines and sines of each group's shared angles, and its tables of phases."""
    if not plan.shared_size:
        return
    with k.loop(args.groups) as group:
        shared, weights = args.shared[group], args.weights[group]
        if plan.shared_angles:
            _write_turns(k, plan, weights, shared.part((), len(plan.shared_angles), 3))
        tables = shared.part((plan.shared_tables,), len(plan.tables), 2, plan.table_size)
        for number, table in enumerate(plan.tables):
            _write_table(k, plan, table, weights, tables[number])


def _write_table(k: FunctionCode, plan: SweepPlan, step: Phases, weights: Buffer, table: Buffer) -> None:
    """Cosine and sine of the sum of half angles, with their signs, of each basis state."""
    cosines = write_sums(k, plan, step, weights, table[0])
    sines = table.part((1, 0), plan.table_size // k.lanes, element="aligned")
    with k.loop(plan.table_size // k.lanes) as v:
        sines[v], cosines[v] = sincos(cosines[v])


def write_sums(
    k: FunctionCode, plan: SweepPlan, step: Phases, weights: Buffer, table: Buffer, moved: bool = False
) -> Buffer:
    """The sum of a step's half angles, or of their tangents, with its sign for each basis state: a Walsh-Hadamard
    transform; the vectors of the table.
    """
    vectors = table.part((), plan.table_size // k.lanes, element="aligned")
    vectors.zero()
    for rotation in step.rotations:
        table[rotation.z] -= half(k, rotation.angle, weights, moved)
    _transform(k, plan, vectors)
    return vectors


def half(k: FunctionCode, angle: Angle, weights: Buffer, moved: bool = False) -> Number:
    """Half of a shared angle, or of its tangent."""
    if angle.kind == "constant":
        return k.constant(0.0 if moved else angle.factor / 2, k.real)
    found: Number = weights[angle.index] * (angle.factor / 2)
    return found


def _write_turns(k: FunctionCode, plan: SweepPlan, weights: Buffer, turns: Buffer) -> None:
    """Cosine, sine and minus sine of half of every shared angle."""
    angles = plan.shared_angles
    # A constant's column is beyond all weights.
    columns = [angle.index if angle.kind == "weight" else plan.weight_columns for angle in angles]
    columns_of = k.table("weight_columns", columns, "integer")
    factors = k.table("weight_factors", [angle.factor / 2 for angle in angles])
    half = k.variable(k.constant(0.0, k.real))
    with k.loop(len(angles)) as i:
        half.value = factors[i]
        column = columns_of[i]
        with k.when(column < plan.weight_columns):
            half.value = weights[column] * half.value
        sine, cosine = sincos(half.value.splat())
        for entry, turn in enumerate((cosine, sine, -sine)):
            turns[i, entry] = turn.lane(0)


def _transform(k: FunctionCode, plan: SweepPlan, table: Buffer) -> None:
    """The Walsh-Hadamard transform of a table in place."""
    vectors = plan.table_size // k.lanes
    for bit in range(plan.program.qubits):
        distance = 1 << bit
        if distance < k.lanes:
            signs = k.vector([-1.0 if lane & distance else 1.0 for lane in range(k.lanes)])
            with k.loop(vectors) as v:
                vector = table[v]
                table[v] = fma(vector, signs, vector.shuffled([lane ^ distance for lane in range(k.lanes)]))
        else:
            with k.loop(vectors // 2) as i:
                low = deposit(i, [bit - k.lanes.bit_length() + 1])
                high = low + distance // k.lanes
                a, b = table[low], table[high]
                table[low], table[high] = a + b, a - b


def prepare_and_forward(k: FunctionCode, args: Arguments, plan: SweepPlan) -> None:
    """One call instead of two, if there is one thread."""
    k.call("prepare")
    k.call("forward")


def collect(k: FunctionCode, args: Arguments, plan: SweepPlan) -> None:
    """The gradients of tensors that a group's samples share: its tiles' rows, added one after the other."""
    if "weight" in plan.wanted and plan.weight_columns:
        _sum_rows(k, args, args.weight_rows, args.weight_gradient, plan.weight_columns)
    if "mix" in plan.wanted:
        _sum_rows(k, args, args.mix_rows, args.mix_gradient, plan.mix_size)


def _sum_rows(k: FunctionCode, args: Arguments, rows: Buffer, sums: Buffer, size: int) -> None:
    """The sums (groups, size) of each group's rows (tiles, size)."""
    tiles, (whole, rest) = args.group_tiles, divmod(size, k.lanes)
    with k.loop(args.groups) as group:
        first, total = group * tiles, sums[group]
        with k.loop(size) as i:
            total[i] = rows[first, i]
        with k.loop(tiles - 1) as tile:
            row = rows[first + (tile + 1)]
            if whole:
                with k.loop(whole) as v:
                    _add(k, total, row, v * k.lanes, k.lanes)
            if rest:
                _add(k, total, row, whole * k.lanes, rest)


def _add(k: FunctionCode, sums: Buffer, terms: Buffer, first: Operand, count: int) -> None:
    """sums += terms for `count` numbers from number `first` on."""
    sums, terms = (numbers.part((first,), 1, element=k.few(count)) for numbers in (sums, terms))
    sums[0] += terms[0]
