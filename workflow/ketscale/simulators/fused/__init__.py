"""`fused`: small circuits compiled whole, samples in the lanes of vectors, gradients by the adjoint method.

`frame` and `program` turn a circuit into rotations about Pauli words, `schedule` orders them into passes
over a state, `plan` lays out the buffers, `vector`, `block`, `rows` and `kernels` write the machine code that
`library` compiles, keeps and loads, and `cpu` calls it from torch. On a GPU `tables` puts the program into
device memory, and `gpu` launches the two kernels of `triton_kernels`. `route` weighs one matrix product
against a sweep.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ketscale.circuits import Angles, Circuit
from ketscale.errors import UserError
from ketscale.simulators.checks import check_request, no_rows
from ketscale.simulators.fused.route import choose, split


class Fused:
    """Our own simulator; everything of a circuit is differentiable: angles, initial states and final ones.

    route: one of `catalogue.ROUTES`.

    Raises:
        UserError: the compiler's package is not installed.
    """

    def __init__(self, route: str = "auto") -> None:
        try:
            from ketscale.simulators.fused import cpu, gpu
        except ImportError as error:
            raise UserError("simulator.device 'fused' is not installed: run `make setup`") from error
        self._on_cpu, self._on_gpu = cpu.evaluate, gpu.evaluate
        self.route = route

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """See `Simulator.state`."""
        check_request(circuit, angles, initial)
        return self._run(circuit, angles, None, initial)

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Simulator.expval`."""
        check_request(circuit, angles, initial, paulis)
        return self._run(circuit, angles, tuple(paulis), initial)

    def _run(
        self, circuit: Circuit, angles: Angles, paulis: tuple[str, ...] | None, initial: torch.Tensor | None
    ) -> torch.Tensor:
        inputs, weights = angles
        batch = inputs.shape[0]
        if batch == 0:
            columns = 2**circuit.qubits if paulis is None else len(paulis)
            return no_rows(
                angles, initial, columns, inputs.dtype.to_complex() if paulis is None else inputs.dtype
            )
        evaluate = self._on_cpu if inputs.is_cpu else self._on_gpu
        literal = self.route == "literal"
        if circuit.inputs == 0 and (initial is None or initial.ndim == 1):
            # All samples are equal: one is computed.
            return evaluate(circuit, inputs[:1], weights, paulis, initial, literal).expand(batch, -1)
        route = self.route
        if route == "auto":
            # The model knows no GPU.
            route = choose(circuit, batch) if inputs.is_cpu else "sweep"
        if route != "matrix":
            return evaluate(circuit, inputs, weights, paulis, initial, literal)
        head, tail = split(circuit)
        states = evaluate(head, inputs, weights, None, initial)
        columns = torch.eye(2**circuit.qubits, dtype=states.dtype, device=states.device)
        states = states @ evaluate(tail, inputs.new_empty(len(columns), 0), weights, None, columns)
        if paulis is None:
            return states
        return evaluate(Circuit(circuit.qubits, ()), inputs[:, :0], weights, paulis, states)
