"""`fused`: small circuits by fixed machine code, samples in the lanes of vectors, gradients by the adjoint method.

`frame` and `program` turn a circuit into rotations about Pauli words. `schedule` orders them into passes over a state, and
`listing` writes them, and what is asked (`Call`), into a table, which the machine code of `kernels`, `rows`, `moves` and
`mixing` reads: it is compiled once for a processor. `call` has its memory; `cpu` makes torch's functions of it, and
`interop.jax_kernels` JAX's. `tables` puts the program into a device's memory: a GPU reads it in the two kernels of
`triton_kernels`, which `gpu` launches, or beyond 12 qubits in `stepwise`, rotation by rotation. `hessians` has all
derivatives but the first ones, by shifted angles or by `stepwise`, on any device; `jax_hessians` those of JAX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from types import ModuleType
from typing import Any

import torch

from ketscale.engines.circuits import transforms
from ketscale.engines.circuits.checks import check_request, no_rows
from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.fused import gpu
from ketscale.engines.circuits.fused.hessians import Values
from ketscale.engines.circuits.fused.program import reduce
from ketscale.engines.circuits.simulator import CircuitPullBack
from ketscale.engines.circuits.superposition import (
    TINY,
    Superposition,
    check_superposition,
    measured,
    mixed,
    reversal,
)
from ketscale.engines.circuits.wrapper import Looped
from ketscale.engines.derivatives import transformed
from ketscale.private_torch import forward_mode, transforms_active
from ketscale.shapes import Complex, Float

# How calls of one set of shapes are answered: a function of inputs, weights and initial states.
Way = Callable[[torch.Tensor, torch.Tensor, "torch.Tensor | None"], torch.Tensor]

# More shapes than any training has.
MOST_WAYS = 4096


class Fused:
    """Our own simulator. Everything is differentiable: angles, initial states and final states.

    stacks: see `simulator.stacks`; also for `superposed` and for torch.func.grad. replays: see `simulator.replays`.

    What it compiles with is needed at its first call: llvmlite on a CPU, Triton on a GPU. A UserError names what is
    missing.
    """

    stacks = True
    replays = True

    def __init__(self) -> None:
        # Checks and choices depend on shapes alone, and take longer than a small circuit does.
        self._ways: dict[object, Way] = {}
        # The compiled calls of `vjp`; None for those that are answered in another way.
        self._compiled: dict[object, Any] = {}

    def __reduce__(self) -> tuple[type[Fused], tuple[()]]:
        return Fused, ()

    @cached_property
    def _cpu(self) -> ModuleType:
        from ketscale.engines.circuits.fused import cpu

        return cpu

    @cached_property
    def _density(self) -> ModuleType:
        from ketscale.engines.noise import density

        return density

    def state(
        self,
        circuit: Circuit,
        angles: Angles,
        initial: Complex[torch.Tensor, "*batch {2**circuit.qubits}"] | None = None,
    ) -> Complex[torch.Tensor, "{len(angles.inputs)} {2**circuit.qubits}"]:
        """See `Simulator.state`."""
        return self._run(circuit, None, *angles, initial)

    def expval(
        self,
        circuit: Circuit,
        angles: Angles,
        paulis: Sequence[str],
        initial: Complex[torch.Tensor, "*batch {2**circuit.qubits}"] | None = None,
    ) -> Float[torch.Tensor, "{len(angles.inputs)} {len(paulis)}"]:
        """See `Simulator.expval`; with channels see `engines.noise`."""
        if circuit.noisy and initial is None:
            return self._density.expval(circuit, angles, tuple(paulis))
        return self._run(circuit, tuple(paulis), *angles, initial)

    def vjp(
        self, circuit: Circuit, angles: Angles, paulis: tuple[str, ...]
    ) -> tuple[torch.Tensor, CircuitPullBack] | None:
        """See `simulator.vjp`; where the answer is one sweep of all samples on a CPU."""
        if circuit.noisy:
            return None
        inputs, weights = angles
        key = (circuit, paulis, inputs.shape, weights.shape, inputs.dtype, weights.dtype)
        if key not in self._compiled:
            self._compiled[key] = self._compile(circuit, angles, paulis)
        compiled = self._compiled[key]
        return None if compiled is None else self._cpu.vjp(compiled, inputs, weights)

    def _compile(self, circuit: Circuit, angles: Angles, paulis: tuple[str, ...]) -> Any:
        """The call of `vjp`, or None."""
        inputs, weights = angles
        *groups, batch, _ = inputs.shape
        check_request(circuit, Angles(inputs[0], weights[0]) if groups else angles, None, paulis)
        # A tile of a single sample of a group would be mostly empty.
        few = batch == 0 or (groups and batch == 1) or circuit.inputs == 0
        more = weights.shape[-1] > circuit.weights
        if few or more or not inputs.is_cpu:
            return None
        call = self._cpu.Call(
            circuit, paulis, inputs.dtype, batch, math.prod(groups), kinds=("input", "weight")
        )
        return self._cpu.compiled(call)

    def superposed(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], superposition: Superposition
    ) -> torch.Tensor:
        """See `superposition.superposed`; on the CPU it is one sweep in one kernel, and no state leaves the cache.

        By way of the states on a GPU, for zero samples, or if Clifford gates leave powers of i.
        """
        inputs, weights = angles
        places = _places(circuit) if inputs.is_cpu and len(inputs) > 0 else None
        if places is None:
            return measured(self, mixed(self, circuit, angles, superposition), paulis)
        order, partners = places
        words = (*paulis, "I" * circuit.qubits)
        check_request(circuit, angles, None, words)
        check_superposition(circuit, angles, superposition)
        constant = superposition.constant[torch.tensor(order)]
        mix = torch.view_as_real(torch.cat([superposition.coefficients, constant])).flatten()
        if transformed(*angles, *superposition):
            result = self._cpu.result_of(circuit, words, partners)
            summed = transforms.grouped(result.values, Values(result), inputs, weights, mix)
        else:
            summed = self._cpu.evaluate(circuit, inputs, weights, words, None, mix, partners)
        values, squares = summed.split([len(paulis), 1], dim=1)
        # Not a power, whose derivative is another one, element by element.
        return values * (squares.sqrt() + TINY).square().reciprocal()

    def _run(
        self,
        circuit: Circuit,
        paulis: tuple[str, ...] | None,
        inputs: torch.Tensor,
        weights: torch.Tensor,
        initial: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The result of one group; or of several, where each tensor has a first dimension for them."""
        if transforms_active() or forward_mode():
            operands = (inputs, weights) if initial is None else (inputs, weights, initial)
            if transformed(*operands):
                check_request(circuit, Angles(inputs, weights), initial, paulis)
                values = partial(self._run, circuit, paulis)
                return transforms.grouped(values, Values(gpu.result(values, circuit, paulis)), *operands)
        # A torch.device takes longer to make, and only GPUs may be several.
        key = (
            circuit, paulis, inputs.shape, weights.shape, inputs.dtype, weights.dtype,
            inputs.is_cpu or inputs.device, weights.is_cpu or weights.device,
            torch.is_grad_enabled(), inputs.requires_grad, weights.requires_grad,
            initial is None or (initial.shape, initial.dtype, initial.is_cpu or initial.device, initial.requires_grad),
        )  # fmt: skip
        way = self._ways.get(key)
        if way is None:
            if inputs.ndim != 3:  # groups were checked one by one
                check_request(circuit, Angles(inputs, weights), initial, paulis)
            way = self._way(circuit, inputs, weights, paulis, initial)
            if len(self._ways) >= MOST_WAYS:
                self._ways.clear()
            self._ways[key] = way
        return way(inputs, weights, initial)

    def _way(
        self,
        circuit: Circuit,
        inputs: torch.Tensor,
        weights: torch.Tensor,
        paulis: tuple[str, ...] | None,
        initial: torch.Tensor | None,
    ) -> Way:
        """How a checked request is answered."""
        *groups, batch, _ = inputs.shape
        if batch == 0:
            columns = 2**circuit.qubits if paulis is None else len(paulis)
            dtype = inputs.dtype.to_complex() if paulis is None else inputs.dtype
            return lambda i, w, s: no_rows(Angles(i, w), s, columns, dtype).expand(*groups, 0, columns)
        # All samples are equal, so only one is computed.
        alike = circuit.inputs == 0 and (initial is None or initial.ndim == len(groups) + 1)
        evaluate = self._cpu.evaluate if inputs.is_cpu else gpu.evaluate
        if alike:
            return lambda i, w, s: evaluate(circuit, i[..., :1, :], w, paulis, s).expand(*groups, batch, -1)
        if inputs.is_cpu and not groups:
            return partial(
                self._cpu.run, self._cpu.compiled_for(circuit, paulis, (inputs, weights, initial, None))
            )
        return lambda i, w, s: evaluate(circuit, i, w, paulis, s)


def looped() -> Looped:
    """`fused`, called once for each sample."""
    return Looped(Fused())


@lru_cache(maxsize=256)
def _places(circuit: Circuit) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """For each amplitude of a kernel, its true index and the amplitude that the reversal puts in its place.

    None if the circuit's Clifford gates leave powers of i to apply, which a superposition would mix.
    """
    program = reduce(circuit, None)
    if any(program.powers or ()):
        return None
    order = program.order or tuple(range(2**circuit.qubits))
    places = {index: place for place, index in enumerate(order)}
    mirrored = reversal(circuit.qubits)
    return order, tuple(places[mirrored[index]] for index in order)
