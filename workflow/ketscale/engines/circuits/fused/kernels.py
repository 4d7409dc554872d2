"""The functions that a plan is compiled to: `prepare`, `forward`, `backward` and `collect`.

`prepare` and `collect` run once in each call, before and after the other two, which run on every thread and take
tiles until none is left. `prepare_and_forward` saves a call if there is one thread. Each sample's arithmetic depends
on neither the thread nor the other samples, and the kernel writes sums over samples tile by tile, so results are the
same for any number of threads. A group's tiles are those that it would have alone, so it gets the same bits too.

Gradients are adjoint (Jones and Gacon, arXiv:2009.02823): with psi the final state and
adjoint = sum of cotangent times word on psi, each rotation is undone on both, and the derivative by its
angle is Im <adjoint|P|psi>.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from ketscale.engines.circuits.fused.block import RegisterBlock, State, Turns, apply, overlaps
from ketscale.engines.circuits.fused.function import Function
from ketscale.engines.circuits.fused.mixing import Mixing
from ketscale.engines.circuits.fused.once import Once
from ketscale.engines.circuits.fused.plan import SweepPlan, rotations
from ketscale.engines.circuits.fused.program import Flip, Rotation, Word
from ketscale.engines.circuits.fused.rows import Places, Rows
from ketscale.engines.circuits.fused.schedule import Pass, Phases, measurement_passes
from ketscale.engines.circuits.fused.words import add_words, expectations, signed_sum
from ketscale.engines.compiled.vector import I64, Value


def module(plan: SweepPlan) -> ir.Module:
    """LLVM code of the plan's kernels."""
    written = ir.Module("ketscale")
    Once(written, "prepare", plan).prepare()
    _Kernel(written, "forward", plan).forward()
    Once(written, "prepare_and_forward", plan).one_after_the_other("prepare", "forward")
    if plan.wanted:
        _Kernel(written, "backward", plan).backward()
        Once(written, "collect", plan).collect()
    return written


class _Kernel(Function):
    """Writes what runs on every thread."""

    def scratch(self, name: str) -> Value:
        """The address of a worker's buffer."""
        return self.w.at(self._scratch, self.plan.scratch[name])

    # --- every tile ---

    @contextmanager
    def _tiles(self) -> Iterator[None]:
        """Write the body for each tile that this worker takes; sets up addresses, and the tile's and group's number."""
        w, plan = self.w, self.plan
        batch, group_tiles = self.argument("batch"), self.argument("group_tiles")
        tiles, counter = self.argument("tiles"), self.argument_address("next_tile")
        worker = w.b.atomic_rmw("add", self.argument_address("next_worker"), w.integer(1), "monotonic")
        offset = w.b.mul(worker, self.argument("scratch_vectors"))
        self._scratch = w.at(self.argument("scratch", True), offset)
        own_states = w.at(self.argument("states", True), w.b.mul(worker, self.argument("states_per_worker")))
        test, body, done = (w.b.append_basic_block(name) for name in ("next_tile", "tile", "done"))
        w.b.branch(test)
        w.b.position_at_end(test)
        self._tile = w.b.atomic_rmw("add", counter, w.integer(1), "monotonic")
        w.b.cbranch(w.b.icmp_unsigned("<", self._tile, tiles), body, done)
        w.b.position_at_end(body)
        self._group = w.b.udiv(self._tile, group_tiles)
        shared = w.element(self.argument("shared", True), w.b.mul(self._group, w.integer(plan.shared_stride)))
        self._coefficients = Turns(w, plan, shared, self.scratch("coefficients"))
        within = w.b.sub(self._tile, w.b.mul(self._group, group_tiles))
        before = w.b.mul(within, w.integer(plan.samples))
        self._first = w.b.add(w.b.mul(self._group, batch), before)
        self._states = w.at(own_states, w.b.mul(self._tile, self.argument("states_per_tile")))
        left = w.b.sub(batch, before)
        full = w.b.icmp_unsigned("<", w.integer(plan.samples), left)
        self._present = w.b.select(full, w.integer(plan.samples), left)
        yield
        w.b.branch(test)
        w.b.position_at_end(done)
        w.b.ret_void()

    def forward(self) -> None:
        """States from angles, then expectation values or amplitudes."""
        plan = self.plan
        with self._tiles():
            self._read_angles()
            psi = self._states
            if plan.from_zero:
                self._make_product(psi)
            else:
                self._rows("initial", True, self.argument("initial_stride")).read(psi, 1.0)
            for pass_ in plan.forward.passes:
                self._run_pass(pass_, psi)
            if plan.program.words is None:
                self._rows("out", in_order=False).write(psi, 1.0)
            else:
                if plan.partners is not None:
                    psi = self.scratch("psi")
                    self._mixing().apply(self._states, psi)
                self._measure(psi, plan.program.words)

    def backward(self) -> None:
        """Gradients from cotangents: the sweep backwards."""
        w, plan = self.w, self.plan
        with self._tiles():
            self._read_angles()
            psi, adjoint = self.scratch("psi"), self.scratch("adjoint")
            if plan.differentiated:
                with w.loop(len(plan.differentiated)) as v:
                    w.store(w.constant(0.0), w.at(self.scratch("gradients"), v))
            if plan.partners is not None:
                self._mixing().apply(self._states, psi)
            else:
                self._copy(self._states, psi)
            if plan.program.words is None:
                # Half of it, since derivatives are twice a product with the adjoint.
                self._rows("cotangent", in_order=False).read(adjoint, 0.5)
            else:
                self._start_adjoint(psi, adjoint, plan.program.words)
            if plan.partners is not None:
                self._undo_mixing(adjoint)
                self._copy(self._states, psi)
            for pass_ in plan.backward:
                self._undo_pass(pass_, psi, adjoint)
            if plan.from_zero:
                self._undo_product(psi, adjoint)
            if "initial" in plan.wanted:
                self._rows("initial_gradient", in_order=True).write(adjoint, 2.0)
            self._write_gradients()

    def _copy(self, source: Value, target: Value) -> None:
        w = self.w
        with w.loop(self.plan.state_vectors) as v:
            w.store(w.load(w.at(source, v)), w.at(target, v))

    def _mixing(self) -> Mixing:
        w = self.w
        own = w.b.mul(self._group, w.integer(self.plan.mix_size))
        return Mixing(w, self.plan, w.element(self.argument("mix", True), own))

    def _undo_mixing(self, adjoint: Value) -> None:
        w, plan = self.w, self.plan
        row = None
        if "mix" in plan.wanted:
            row = w.element(self.argument("mix_rows", True), w.b.mul(self._tile, w.integer(plan.mix_size)))
        self._mixing().undo(self._states, adjoint, row, self.scratch("mix"))

    # --- angles in, gradients out ---

    def _read_angles(self) -> None:
        """Cosine, sine and minus sine of half of every angle that differs between samples."""
        w, plan = self.w, self.plan
        if not plan.sample_angles:
            return
        columns, rows = self.scratch("inputs"), self.argument("inputs", True)
        self._transpose(rows, self.argument("input_stride"), columns, plan.inputs)
        places = w.table("columns", I64, [a.index for a in plan.sample_angles])
        factors = w.table("factors", w.real, [a.factor / 2 for a in plan.sample_angles])
        coefficients = self.scratch("coefficients")
        with w.loop(len(plan.sample_angles)) as i:
            angle = w.load(w.at(columns, w.b.load(w.element(places, i, I64), typ=I64)))
            sine, cosine = w.sincos(w.b.fmul(self._spread(angle), w.load_splat(w.element(factors, i))))
            first = w.at(coefficients, w.b.mul(i, w.integer(3)))
            for entry, vector in enumerate((cosine, sine, w.b.fneg(sine))):
                w.store(vector, w.at(first, entry))

    def _transpose(self, rows: Value, stride: Value, columns: Value, count: int) -> None:
        """Put row elements of the tile's samples into lanes; lanes without a sample repeat the last sample."""
        w, plan = self.w, self.plan
        with w.loop(plan.samples) as sample:
            last = w.b.sub(self._present, w.integer(1))
            exists = w.b.icmp_unsigned("<", sample, self._present)
            row = w.b.add(self._first, w.b.select(exists, sample, last))
            start = w.element(rows, w.b.mul(row, stride))
            lane = w.element(columns, w.b.shl(sample, w.integer(plan.lane_bits)))
            with w.loop(count) as i:
                w.b.store(w.load_real(w.element(start, i)), w.element(lane, w.b.mul(i, w.integer(w.lanes))))

    def _spread(self, vector: Value) -> Value:
        """Each sample's first lane in all of its lanes."""
        group = (1 << self.plan.lane_bits) - 1
        return self.w.shuffle(vector, [lane & ~group for lane in range(self.w.lanes)])

    def _write_gradients(self) -> None:
        """Add each rotation's accumulated gradient to its column: per sample, or over the tile for weights."""
        w, plan = self.w, self.plan
        gathered = self.scratch("gradients")

        def total(kind: str, index: int, group: int) -> Value | None:
            sum_ = None
            for slot, rotation in enumerate(plan.differentiated):
                angle = rotation.angle
                if (angle.kind, angle.index) == (kind, index):
                    vector = w.load(w.at(gathered, slot))
                    signs = self._lane_signs(rotation)
                    vector = vector if signs is None else w.b.fmul(vector, signs)
                    sum_ = w.fma(vector, w.constant(angle.factor), sum_)
            return None if sum_ is None else w.sum_lanes(sum_, group)

        if "weight" in plan.wanted:
            row = w.b.mul(self._tile, w.integer(plan.weights))
            start = w.element(self.argument("weight_rows", True), row)
            for index in range(plan.weights):
                sum_ = total("weight", index, w.lanes)
                value = ir.Constant(w.real, 0.0) if sum_ is None else w.b.extract_element(sum_, w.integer(0))
                w.b.store(value, w.element(start, index))
        if "input" in plan.wanted and plan.inputs:
            columns = self.scratch("inputs")
            for index in range(plan.inputs):
                sum_ = total("input", index, 1 << plan.lane_bits)
                w.store(w.constant(0.0) if sum_ is None else sum_, w.at(columns, index))
            rows, stride = self.argument("input_gradient", True), self.argument("input_gradient_stride")
            with w.loop(self._present) as sample:
                start = w.element(rows, w.b.mul(w.b.add(self._first, sample), stride))
                lane = w.element(columns, w.b.shl(sample, w.integer(plan.lane_bits)))
                with w.loop(plan.inputs) as i:
                    value = w.load_real(w.element(lane, w.b.mul(i, w.integer(w.lanes))))
                    w.b.store(value, w.element(start, i))

    def _lane_signs(self, rotation: Rotation) -> Value | None:
        lanes = rotation.x & ((1 << self.plan.lane_bits) - 1)
        return self._block(self.w.integer(0), ()).lane_signs(rotation.z, lanes)

    # --- states in and out ---

    def _rows(self, name: str, in_order: bool, stride: Value | None = None) -> Rows:
        """The batch's states in memory; a circuit's final states may have their amplitudes in another order."""
        w, plan = self.w, self.plan
        places = None
        if not in_order and plan.program.order is not None:
            places = Places(self.argument("sources", True), self.argument("powers", True))
        stride = stride or w.integer(2 << plan.program.qubits)
        return Rows(w, plan, self.argument(name, True), stride, self._first, self._present, places)

    # --- passes ---

    def _block(self, base: Value, basis: tuple[int, ...]) -> RegisterBlock:
        return RegisterBlock(self.w, self.plan, base, basis)

    @contextmanager
    def _blocks(self, basis: tuple[int, ...]) -> Iterator[RegisterBlock]:
        """Loop over the blocks that are closed under the flips of `basis`."""
        w = self.w
        with w.loop(self.plan.vectors >> len(basis)) as i:
            pivots = sorted(vector.bit_length() - 1 for vector in basis)
            yield self._block(w.deposit(i, pivots), basis)

    def _run_pass(self, pass_: Pass, psi: Value) -> None:
        with self._blocks(pass_.basis) as block:
            states = [block.load(psi)]
            for step in pass_.steps:
                states = apply(block, step, self._coefficients, states)
            block.store(states[0], psi)

    def _undo_pass(self, pass_: Pass, psi: Value, adjoint: Value) -> None:
        with self._blocks(pass_.basis) as block:
            states = [block.load(psi), block.load(adjoint)]
            for step in pass_.steps:
                if not isinstance(step, Flip):
                    self._gather(block, step, states)
                states = apply(block, step, self._coefficients, states, inverse=True)
            block.store(states[0], psi)
            block.store(states[1], adjoint)

    def _gather(self, block: RegisterBlock, step: Rotation | Phases, states: Sequence[State]) -> None:
        """Add the block's share of the step's wanted gradients to their accumulators."""
        w, plan = self.w, self.plan
        if not any(plan.wants(rotation) for rotation in rotations(step)):
            return
        for rotation, value in overlaps(block, step, *states):
            if plan.wants(rotation):
                address = w.at(self.scratch("gradients"), plan.differentiated.index(rotation))
                w.store(signed_sum(w, block, rotation.z, value, w.load(address)), address)

    # --- product states ---

    def _make_product(self, psi: Value) -> None:
        """|0...0> after the first rotations: the support doubles with every bit."""
        w, plan = self.w, self.plan
        low, high = self._product_bits()
        group = (1 << plan.lane_bits) - 1
        one = w.constant([0.0 if lane & group else 1.0 for lane in range(w.lanes)])
        zero = w.constant(0.0)
        block = self._block(w.integer(0), ())
        states: list[State] = [[(one, None if plan.real else zero)]]
        for rotation in low:
            states = apply(block, rotation, self._coefficients, states)
        block.store(states[0], psi)
        for bit in range(plan.program.qubits - plan.lane_bits):
            with w.loop(1 << bit) as v:
                pair = self._block(v, (1 << bit,))
                states = [[pair.load(psi)[0], (zero, None if plan.real else zero)]]
                if bit in high:
                    states = apply(pair, high[bit], self._coefficients, states)
                pair.store(states[0], psi)

    def _undo_product(self, psi: Value, adjoint: Value) -> None:
        """The backward pass through the first rotations: after each, only half of the amplitudes matter."""
        w, plan = self.w, self.plan
        low, high = self._product_bits()
        wanted = [rotation for rotation in plan.forward.product if plan.wants(rotation)]
        if not wanted:
            return
        for bit in sorted(high, reverse=True):
            with w.loop(1 << bit) as v:
                pair = self._block(v, (1 << bit,))
                states = [pair.load(psi), pair.load(adjoint)]
                self._gather(pair, high[bit], states)
                states = apply(pair, high[bit], self._coefficients, states, inverse=True)
                pair.store(states[0][:1], psi)
                pair.store(states[1][:1], adjoint)
        block = self._block(w.integer(0), ())
        states = [block.load(psi), block.load(adjoint)]
        for rotation in reversed(low):
            self._gather(block, rotation, states)
            states = apply(block, rotation, self._coefficients, states, inverse=True)

    def _product_bits(self) -> tuple[list[Rotation], dict[int, Rotation]]:
        """The first rotations inside a vector, and those between vectors by the bit of the vector's index."""
        bits = {r.x.bit_length() - 1 - self.plan.lane_bits: r for r in self.plan.forward.product}
        return [r for bit, r in bits.items() if bit < 0], {bit: r for bit, r in bits.items() if bit >= 0}

    # --- measuring ---

    def _measure(self, psi: Value, words: Sequence[Word]) -> None:
        """Expectation values of the tile's samples, written to `out`."""
        w, plan = self.w, self.plan
        sums = self.scratch("words")
        with w.loop(len(words)) as v:
            w.store(w.constant(0.0), w.at(sums, v))
        seen = self._seen(words)
        for basis, masks in measurement_passes([w_ for _, w_ in seen], self._width(), plan.lane_bits):
            with self._blocks(basis) as block:
                state = block.load(psi)
                for mask in masks:
                    group = [(i, word) for i, word in seen if word.x == mask]
                    for (i, word), value in zip(group, expectations(w, block, state, group), strict=True):
                        address = w.at(sums, i)
                        w.store(signed_sum(w, block, word.z, value, w.load(address)), address)
        self._write_words(words)

    def _seen(self, words: Sequence[Word]) -> list[tuple[int, Word]]:
        """Words whose value can differ from 0: with real amplitudes, those with an even number of Y."""
        return [(i, word) for i, word in enumerate(words) if not (self.plan.real and word.ys % 2)]

    def _width(self) -> int:
        return min(self.plan.widths[0], self.plan.program.qubits - self.plan.lane_bits)

    def _write_words(self, words: Sequence[Word]) -> None:
        w, plan = self.w, self.plan
        sums, rows = self.scratch("words"), self.argument("out", True)
        for i, word in enumerate(words):
            value = w.load(w.at(sums, i))
            lanes = word.x & ((1 << plan.lane_bits) - 1)
            signs = self._block(w.integer(0), ()).lane_signs(word.z, lanes)
            value = value if signs is None else w.b.fmul(value, signs)
            value = w.sum_lanes(value, 1 << plan.lane_bits)
            w.store(value if word.sign > 0 else w.b.fneg(value), w.at(sums, i))
        with w.loop(self._present) as sample:
            row = w.element(rows, w.b.mul(w.b.add(self._first, sample), w.integer(len(words))))
            lane = w.element(sums, w.b.shl(sample, w.integer(plan.lane_bits)))
            with w.loop(len(words)) as i:
                w.b.store(w.load_real(w.element(lane, w.b.mul(i, w.integer(w.lanes)))), w.element(row, i))

    def _start_adjoint(self, psi: Value, adjoint: Value, words: Sequence[Word]) -> None:
        """adjoint = sum of cotangent times word on psi; lanes without a sample get 0."""
        w, plan = self.w, self.plan
        weights = self.scratch("words")
        self._transpose(self.argument("cotangent", True), w.integer(len(words)), weights, len(words))
        samples = [lane >> plan.lane_bits for lane in range(w.lanes)]
        number = ir.Constant(ir.VectorType(I64, w.lanes), samples)
        spread = w.b.insert_element(
            ir.Constant(ir.VectorType(I64, w.lanes), ir.Undefined), self._present, w.integer(0)
        )
        exists = w.b.icmp_unsigned("<", number, w.shuffle(spread, [0] * w.lanes))
        for i, word in enumerate(words):
            value = self._spread(w.load(w.at(weights, i)))
            value = w.b.select(exists, value, w.constant(0.0))
            w.store(value if word.sign > 0 else w.b.fneg(value), w.at(weights, i))
        seen = self._seen(words)
        passes = measurement_passes([word for _, word in seen], self._width(), plan.lane_bits)
        if not passes:
            with w.loop(plan.state_vectors) as v:
                w.store(w.constant(0.0), w.at(adjoint, v))
        for number_, (basis, masks) in enumerate(passes):
            with self._blocks(basis) as block:
                state = block.load(psi)
                image: State = [(None, None)] * len(state) if number_ == 0 else block.load(adjoint)
                for mask in masks:
                    group = [(i, word) for i, word in seen if word.x == mask]
                    image = add_words(w, block, state, image, group, weights)
                block.store(image, adjoint)
