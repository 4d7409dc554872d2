"""Code that runs once in each call: tables from the weights before the tiles, the weights' gradient after them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from ketscale.engines.circuits.fused.function import Function
from ketscale.engines.circuits.fused.program import Angle
from ketscale.engines.compiled.vector import I64, Value


class Once(Function):
    """Writes `prepare`, `collect`, and calls of functions that were written before."""

    def one_after_the_other(self, *names: str) -> None:
        """Call functions that were written before."""
        for name in names:
            self.w.b.call(self.w.module.globals[name], [self.w.arguments])
        self.w.b.ret_void()

    def prepare(self) -> None:
        """Cosines and sines of each group's shared angles, and its tables of phases."""
        w, plan = self.w, self.plan
        if plan.shared_size:
            with w.loop(self.argument("groups")) as group:
                own = w.b.mul(group, w.integer(plan.shared_stride))
                shared = w.element(self.argument("shared", True), own)
                own = w.b.mul(group, w.integer(plan.weights))
                self._prepare_group(shared, w.element(self.argument("weights", True), own))
        w.b.ret_void()

    def _prepare_group(self, shared: Value, weights: Value) -> None:
        w, plan = self.w, self.plan
        if plan.shared_angles:
            self._each_angle(
                plan.shared_angles, weights, lambda i, half: self._store_scalars(shared, i, half)
            )
        for number, table in enumerate(plan.tables):
            start = w.element(shared, plan.shared_tables + 2 * plan.table_size * number)
            with w.loop(plan.table_size // w.lanes) as v:
                w.store(w.constant(0.0), w.at(start, v))
            for rotation in table.rotations:
                place = w.element(start, rotation.z)
                half = self._half_angle(rotation.angle, weights)
                w.b.store(w.b.fsub(w.load_real(place), half), place)
            self._transform(start)
            with w.loop(plan.table_size // w.lanes) as v:
                sine, cosine = w.sincos(w.load(w.at(start, v)))
                w.store(cosine, w.at(start, v))
                w.store(sine, w.at(start, v, plan.table_size // w.lanes))

    def _half_angle(self, angle: Angle, weights: Value) -> Value:
        w = self.w
        if angle.kind == "constant":
            return ir.Constant(w.real, angle.factor / 2)
        column = w.load_real(w.element(weights, angle.index))
        return w.b.fmul(column, ir.Constant(w.real, angle.factor / 2))

    def _store_scalars(self, shared: Value, i: Value, half: Value) -> None:
        w = self.w
        sine, cosine = w.sincos(w.splat(half))
        first = w.b.mul(i, w.integer(3))
        for entry, vector in enumerate((cosine, sine, w.b.fneg(sine))):
            scalar = w.b.extract_element(vector, w.integer(0))
            w.b.store(scalar, w.element(shared, w.b.add(first, w.integer(entry))))

    def _each_angle(
        self, angles: Sequence[Angle], weights: Value, use: Callable[[Value, Value], None]
    ) -> None:
        """Call `use(number, half angle)` in a loop over shared angles."""
        w = self.w
        columns = w.table("weight_columns", I64, [a.index if a.kind == "weight" else -1 for a in angles])
        factors = w.table("weight_factors", w.real, [a.factor / 2 for a in angles])
        with w.loop(len(angles)) as i:
            column = w.b.load(w.element(columns, i, I64), typ=I64)
            constant = w.b.icmp_signed("<", column, w.integer(0))
            one = w.element(w.table("one", w.real, [1.0]), 0)
            address = w.b.select(constant, one, w.element(weights, column))
            use(i, w.b.fmul(w.load_real(address), w.load_real(w.element(factors, i))))

    def _transform(self, start: Value) -> None:
        """The Walsh-Hadamard transform of a table in place."""
        w, plan = self.w, self.plan
        for bit in range(plan.program.qubits):
            distance = 1 << bit
            if distance < w.lanes:
                signs = w.constant([-1.0 if lane & distance else 1.0 for lane in range(w.lanes)])
                with w.loop(plan.table_size // w.lanes) as v:
                    vector = w.load(w.at(start, v))
                    partner = w.shuffle(vector, [lane ^ distance for lane in range(w.lanes)])
                    w.store(w.fma(vector, signs, partner), w.at(start, v))
            else:
                with w.loop(plan.table_size // w.lanes // 2) as i:
                    low = w.deposit(i, [bit - w.lanes.bit_length() + 1])
                    addresses = [w.at(start, low), w.at(start, low, distance // w.lanes)]
                    a, b = map(w.load, addresses)
                    w.store(w.b.fadd(a, b), addresses[0])
                    w.store(w.b.fsub(a, b), addresses[1])

    def collect(self) -> None:
        """The gradients of tensors that a group's samples share: its tiles' rows, added one after the other."""
        plan = self.plan
        if "weight" in plan.wanted and plan.weights:
            self._sum_rows("weight_rows", "weight_gradient", plan.weights)
        if "mix" in plan.wanted:
            self._sum_rows("mix_rows", "mix_gradient", plan.mix_size)
        self.w.b.ret_void()

    def _sum_rows(self, rows: str, out: str, size: int) -> None:
        w, tiles = self.w, self.argument("group_tiles")
        with w.loop(self.argument("groups")) as group:
            before = w.b.mul(w.b.mul(group, tiles), w.integer(size))
            first = w.element(self.argument(rows, True), before)
            sums = w.element(self.argument(out, True), w.b.mul(group, w.integer(size)))
            self._sum_group(first, sums, tiles, size)

    def _sum_group(self, first: Value, sums: Value, tiles: Value, size: int) -> None:
        w = self.w
        with w.loop(size) as i:
            w.b.store(w.load_real(w.element(first, i)), w.element(sums, i))
        others = w.b.sub(tiles, w.integer(1))
        with w.loop(others) as tile:
            row = w.element(first, w.b.mul(w.b.add(tile, w.integer(1)), w.integer(size)))
            whole, rest = divmod(size, w.lanes)
            if whole:
                with w.loop(whole) as v:
                    self._add(row, sums, w.b.mul(v, w.integer(w.lanes)), w.lanes)
            if rest:
                self._add(row, sums, w.integer(whole * w.lanes), rest)

    def _add(self, terms: Value, sums: Value, first: Value, count: int) -> None:
        """sums += terms for `count` floats from number `first` on."""
        w = self.w
        typ = ir.VectorType(w.real, count)
        place = w.element(sums, first)
        term = w.b.load(w.element(terms, first), typ=typ, align=w.bytes)
        w.b.store(w.b.fadd(w.b.load(place, typ=typ, align=w.bytes), term), place, align=w.bytes)
