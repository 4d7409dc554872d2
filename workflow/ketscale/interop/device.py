"""`qml.device("ketscale.fused", wires=n)`: PennyLane's interface to the simulator `fused`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import NoneType
from typing import Any

import numpy as np
import pennylane as qml
import torch
from pennylane.devices import Device, ExecutionConfig
from pennylane.devices.default_qubit import accepted_analytic_measurement, accepted_sample_measurement
from pennylane.devices.modifiers import simulator_tracking, single_tape_support
from pennylane.devices.preprocess import no_sampling, validate_device_wires, validate_measurements
from pennylane.devices.qubit.simulate import measure_final_state
from pennylane.devices.qubit_mixed import measure_final_state as measure_final_mixture
from pennylane.exceptions import DeviceError
from pennylane.math import Interface
from pennylane.tape import QuantumScript
from pennylane.transforms import broadcast_expand, defer_measurements
from pennylane.transforms.core import CompilePipeline

from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.derivatives import paired, uncompiled
from ketscale.engines.noise.trajectories import Trajectories
from ketscale.interop import tape as tapes
from ketscale.interop.decompositions import decomposed
from ketscale.interop.replay import Evaluator, read_tape
from ketscale.interop.tape import NAME
from ketscale.interop.tape_cache import CachedTape, TapeCache

# The names of the device's own gradient.
OWN = ("best", "backprop", "adjoint")

# JAX's interfaces, outside and inside of jit.
JAX = (Interface.JAX, Interface.JAX_JIT)


@simulator_tracking
@single_tape_support
class FusedDevice(Device):
    """Small circuits in `fused`, on the device of torch's parameters, in double precision.

    Gradients are exact. With the interfaces of torch and of JAX these differentiate the device itself, twice, and JAX maps
    it, in any nesting; with the others the device computes vector-Jacobian products. Parameters may be broadcast. That is
    diff_method 'best', 'backprop' and 'adjoint'; 'best' is parameter-shift where there are shots and where `max_diff` asks
    for second derivatives that the device does not have.

    wires: number or names of the wires; None for those of each circuit. shots: see `qml.device`.
    seed: of the samples, as for `default.qubit`; no key of JAX.
    readout_prob: the probability that a measured wire is read wrongly, as for `default.mixed`.
    trajectories: of how many random pure states expectation values of circuits with channels are means, with the interface of torch;
        see `engines.noise.trajectories`. None is exact.

    Circuits with PennyLane's channels on one qubit, with `QubitChannel`, `PauliError` and `ThermalRelaxationError` on two at most,
    or with readout errors have density matrices, which are computed on the CPU.
    """

    name = NAME

    def __init__(
        self,
        wires: Any = None,
        shots: Any = None,
        seed: Any = "global",
        readout_prob: float | None = None,
        trajectories: int | None = None,
    ) -> None:
        super().__init__(wires=wires, shots=shots)
        # A tensor would lose its gradient.
        numbers = (NoneType, int, float, np.number)
        if not isinstance(readout_prob, numbers) or not 0 <= (readout_prob or 0) <= 1:
            raise DeviceError(f"readout_prob is a number from 0 to 1, not {readout_prob!r}")
        self._readout = float(readout_prob or 0.0)
        # As default.qubit has it: np.random.seed makes all devices of a program repeatable.
        self._rng = np.random.default_rng(np.random.randint(10_000_000) if seed == "global" else seed)  # noqa: NPY002
        self._simulator: Simulator = Fused() if trajectories is None else Trajectories(Fused(), trajectories)
        self._cache = TapeCache(self._simulator, self.wires)

    def supports_derivatives(
        self, execution_config: ExecutionConfig | None = None, circuit: QuantumScript | None = None
    ) -> bool:
        """Whether the device itself differentiates what is computed without shots."""
        if execution_config is None:
            return True
        # Torch and JAX differentiate the circuit itself, which has second derivatives.
        most = 1 if _method(execution_config) == "adjoint" else 2
        if execution_config.derivative_order > most or execution_config.gradient_method not in OWN:
            return False
        if circuit is None:
            return True
        # PennyLane measures these with SciPy's sparse matrices, which nothing differentiates.
        sparse = any(isinstance(m.obs, qml.SparseHamiltonian) for m in circuit.measurements)
        return not (sparse or circuit.shots)

    supports_vjp = supports_derivatives

    def setup_execution_config(
        self, config: ExecutionConfig | None = None, circuit: QuantumScript | None = None
    ) -> ExecutionConfig:
        """See `Device.setup_execution_config`.

        Raises:
            DeviceError: an option, or a way to measure in the middle of a circuit, that this device does not have.
        """
        config = config or ExecutionConfig()
        for option in config.device_options:
            raise DeviceError(f"{NAME} has no device option {option!r}")
        measured = config.mcm_config
        if measured.mcm_method not in (None, "deferred"):
            raise DeviceError(
                f"{NAME} defers measurements: it has no mcm_method {str(measured.mcm_method)!r}"
            )
        own = config.gradient_method in OWN
        method = _method(config) if own else config.gradient_method
        if not own and method is not None and isinstance(self._simulator, Trajectories):
            raise DeviceError("trajectories differentiate themselves: leave out diff_method")
        return replace(
            config,
            gradient_method=method,
            use_device_gradient=own if config.use_device_gradient is None else config.use_device_gradient,
            # The QNode's device_vjp, whose default is False, is overruled: products fit broadcast parameters, and cost
            # one backward pass where a Jacobian needs one for each result.
            use_device_jacobian_product=method == "adjoint",
            grad_on_execution=False if config.grad_on_execution is None else config.grad_on_execution,
            mcm_config=replace(measured, mcm_method="deferred"),
        )

    def preprocess_transforms(self, execution_config: ExecutionConfig | None = None) -> CompilePipeline:
        """See `Device.preprocess_transforms`."""
        config = execution_config or ExecutionConfig()
        method, pipeline = config.gradient_method, CompilePipeline()
        pipeline.add_transform(validate_device_wires, self.wires, name=NAME)
        pipeline.add_transform(defer_measurements, allow_postselect=False)
        pipeline.add_transform(_sums)
        pipeline.add_transform(decomposed, self.wires, mixed=bool(self._readout))
        pipeline.add_transform(
            validate_measurements,
            analytic_measurements=accepted_analytic_measurement,
            sample_measurements=accepted_sample_measurement,
            name=NAME,
        )
        pipeline.add_transform(_one_shadow_at_a_time)
        if method in ("backprop", "adjoint"):
            pipeline.add_transform(no_sampling, name=f"{method} + {NAME}")
        if config.interface != Interface.TORCH or method not in ("backprop", None) or self._readout:
            return pipeline
        program = CompilePipeline()
        program.add_transform(_cached_or, self._cache, pipeline)
        return program

    @uncompiled
    def execute(self, circuits: Any, execution_config: ExecutionConfig | None = None) -> Any:
        """See `Device.execute`."""
        config = execution_config or ExecutionConfig()
        through = config.interface if config.gradient_method in ("backprop", None) else None
        results = []
        for tape in circuits:
            if isinstance(tape, CachedTape):
                with tape.way.unqueued():
                    results.append(_one_or_all(tape.way(tape.tensors)))
                continue
            # With other interfaces PennyLane itself makes operators while another thread records.
            with tapes.unqueued() if through == Interface.TORCH else nullcontext():
                results.append(self._executed(tape.map_to_standard_wires(), through))
        return tuple(results)

    def _executed(self, tape: QuantumScript, through: Interface | None) -> Any:
        """The results; through: the interface whose arrays go in and out, to be differentiated."""
        if through in JAX and not tape.shots:
            from ketscale.interop import jax_tape

            if isinstance(self._simulator, Trajectories):
                raise DeviceError("trajectories are of the interface of torch: leave them out")
            return _one_or_all(jax_tape.results(tape, tapes.readout(self._readout, tape)))
        with torch.set_grad_enabled(torch.is_grad_enabled() and not tape.shots):
            evaluator, numbers = self._evaluator(tape)
            if through != Interface.TORCH and any(x.requires_grad for x in numbers):
                raise DeviceError(
                    f"PennyLane does not see that an operator holds a tensor that requires a gradient, and {NAME} would lose it: "
                    "write qml.qnode(device, interface='torch')"
                )
            if not tape.shots:
                results = evaluator.evaluate(numbers)
                return _one_or_all(
                    results if through == Interface.TORCH else [x.cpu().numpy() for x in results]
                )
            batched = evaluator.structure.batch is not None
            mixed = evaluator.mixed
            state = tapes.unflattened(evaluator.state(numbers), tape.num_wires * (1 + mixed), batched)
        measure = measure_final_mixture if mixed else measure_final_state
        return measure(tape, state.cpu().numpy(), batched, rng=self._rng)

    def _evaluator(self, tape: QuantumScript) -> tuple[Evaluator, list[torch.Tensor]]:
        """What evaluates a tape, and the numbers that it needs.

        Raises:
            DeviceError: the tape has no wires.
        """
        if tape.num_wires == 0:
            raise DeviceError("a circuit without wires has nothing to simulate")
        structure, numbers = read_tape(tape, spec=None)
        structure = structure._replace(gates=(*structure.gates, *tapes.readout(self._readout, tape)))
        return Evaluator(structure, self._simulator, torch.float64, tapes.device_of(numbers)), numbers

    def compute_vjp(
        self, circuits: Any, cotangents: Any, execution_config: ExecutionConfig | None = None
    ) -> Any:
        """The products of cotangents with each circuit's Jacobian, one for each trainable parameter."""
        if isinstance(self._simulator, Trajectories):  # the products would be of other draws than the values
            raise DeviceError(
                "trajectories have gradients with the interface of torch: write interface='torch'"
            )
        return tuple(
            self._vjp(tape.map_to_standard_wires(), cotangent if len(tape.measurements) > 1 else (cotangent,))
            for tape, cotangent in zip(circuits, cotangents, strict=True)
        )

    def _vjp(self, tape: QuantumScript, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        values = map(np.asarray, tape.get_parameters())
        leaves = [torch.tensor(v if v.dtype.kind in "fc" else v.astype(float)) for v in values]
        for leaf in leaves:
            leaf.requires_grad_()
        with torch.enable_grad():
            evaluator, numbers = self._evaluator(tape.bind_new_parameters(leaves, tape.trainable_params))
            results = evaluator.evaluate(numbers)
        # autograd writes cotangents and gradients of complex numbers as the conjugates of torch's.
        terms = [
            paired(result, torch.tensor(np.asarray(cotangent)).to(result.dtype).conj().reshape(result.shape))
            for result, cotangent in zip(results, cotangents, strict=True)
            if result.requires_grad
        ]
        if not terms:
            return tuple(np.zeros(leaf.shape) for leaf in leaves)
        gradients = torch.autograd.grad(terms, leaves, allow_unused=True, materialize_grads=True)
        return tuple(gradient.conj().resolve_conj().numpy() for gradient in gradients)


def _method(config: ExecutionConfig) -> str:
    """How the device differentiates for an interface."""
    return "backprop" if config.interface in (Interface.TORCH, *JAX) else "adjoint"


def _one_or_all(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


@qml.transform
def _cached_or(
    tape: QuantumScript, cache: TapeCache, pipeline: CompilePipeline
) -> tuple[Any, Callable[[Any], Any]]:
    """A tape that is known, or else what the pipeline makes of it."""
    with tapes.unqueued():
        entry = cache.find(tape)
        if entry is not None:
            return (CachedTape(lambda: pipeline((tape,))[0][0], tape, *entry),), lambda results: results[0]
        programs, gathered = pipeline((tape,))
    return programs, lambda results: gathered(results)[0]


@qml.transform
def _sums(tape: QuantumScript) -> tuple[Any, Callable[[Any], Any]]:
    """Linear combinations with trainable coefficients as sums, to which PennyLane binds tensors without reading them."""
    if not any(isinstance(m.obs, qml.ops.LinearCombination) for m in tape.measurements):
        return (tape,), lambda results: results[0]
    measurements = [
        type(m)(obs=qml.dot(*m.obs.terms()))
        if isinstance(m.obs, qml.ops.LinearCombination) and any(map(qml.math.requires_grad, m.obs.data))
        else m
        for m in tape.measurements
    ]
    return (tape.copy(measurements=measurements),), lambda results: results[0]


@qml.transform
def _one_shadow_at_a_time(tape: QuantumScript) -> tuple[Any, Callable[[Any], Any]]:
    """PennyLane measures classical shadows of one state, not of a batch."""
    if any(
        isinstance(m, qml.measurements.ClassicalShadowMP | qml.measurements.ShadowExpvalMP)
        for m in tape.measurements
    ):
        return broadcast_expand(tape)
    return (tape,), lambda results: results[0]
