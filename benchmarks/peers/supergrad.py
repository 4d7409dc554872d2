"""SuperGrad under test (arXiv:2406.18155), as its own benchmark uses it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.dynamics import Array
from benchmarks.peers.on_jax import imported
from benchmarks.pulses import DrivenChain, Parameters
from benchmarks.runner import Call

TWO_PI = 2 * math.pi
PULSE = "pulsex"
# Its names of parameters, and what they are multiplied by: it has energies in rad/ns.
PULSES = {"amplitude": "amp", "frequency": "omega_d", "phase": "phase", "length": "length"}
CIRCUITS = {
    "charging": ("ec", TWO_PI),
    "josephson": ("ej", TWO_PI),
    "inductive": ("el", TWO_PI),
    "flux": ("phiext", 1.0),
}
COUPLINGS = {
    "capacitive_coupling": ("capacitive_coupling", TWO_PI),
    "inductive_coupling": ("inductive_coupling", TWO_PI),
}


class Gate:
    """One compiled `product_basis` of all columns, mapped over them, with its gradient.

    steps: of exponential midpoint, 5,000 points in time in the published benchmark. order: of the Trotter splitting.
    name: supergrad has its reversible adjoint (LCAM), supergrad-tad JAX's own differentiation. diagonal: each term of
    the Hamiltonian is diagonalised before the steps, as published. The gradient by the flux is then wrong (see the test).
    """

    def __init__(
        self, name: str = "supergrad", steps: int = 4999, order: int = 2, diagonal: bool = True
    ) -> None:
        imported("supergrad")
        self.steps: int | None = steps
        adjoint = None if name == "supergrad-tad" else "LCAM"
        # It takes one step fewer than it is given points.
        self._options = {
            "astep": steps + 1,
            "trotter_order": order,
            "diag_ops": diagonal,
            "custom_vjp": adjoint,
        }

    def prepare(self, chain: DrivenChain) -> Call:
        """See `pulses.Own.prepare`."""
        jax, helper = imported("jax"), imported("supergrad.helper")
        fidelity = imported("supergrad.utils.sharding").distributed_state_fidelity
        # The options of an evolution are emptied when it is traced.
        evolution = helper.Evolve(
            _graph(chain),
            truncated_dim=chain.levels,
            add_random=False,
            compensation_option="no_comp",
            options=dict(self._options),
        )
        target = np.eye(2**chain.qubits)[::-1]

        def infidelity(parameters: Any) -> Any:
            return 1 - fidelity(target, evolution.product_basis(parameters))

        compiled = jax.jit(jax.value_and_grad(infidelity))
        parameters = evolution.all_params

        def call() -> tuple[float, Array]:
            value, gradient = compiled(parameters)
            return float(value), _flat(gradient, chain.qubits)

        return call


def _graph(driven: DrivenChain) -> Any:
    """Its graph of the chain, with the same numbers."""
    chain = imported("supergrad.scgraph.graph_mpc_fluxonium_1d").MPCFluxonium1D(driven.qubits, periodic=False)
    numbers = {name: each.tolist() for name, each in driven.parameters._asdict().items()}
    for site in range(driven.qubits):
        node = chain.nodes[f"fm{site}"]
        node.update({peer: unit * numbers[name][site] for name, (peer, unit) in CIRCUITS.items()})
        node[PULSE] = {peer: numbers[name][site] for name, peer in PULSES.items()} | {
            "pulse_type": "cos",
            "operator_type": "phi_operator",
            "delay": 0.0,
        }
    for pair in range(driven.qubits - 1):
        edge = chain.edges[f"fm{pair}", f"fm{pair + 1}"]
        edge.update(
            {peer: {"strength": unit * numbers[name][pair]} for name, (peer, unit) in COUPLINGS.items()}
        )
    return chain


def _flat(gradient: Any, qubits: int) -> Array:
    """A gradient by its parameters as one by ours."""
    parts = {
        name: [gradient[f"fm{site}_{PULSE}_cos"][expected] for site in range(qubits)]
        for name, expected in PULSES.items()
    }
    parts |= {
        name: [unit * gradient[f"fm{site}"][expected] for site in range(qubits)]
        for name, (expected, unit) in CIRCUITS.items()
    }
    parts |= {
        name: [unit * gradient[f"{expected}_fm{pair}_fm{pair + 1}"]["strength"] for pair in range(qubits - 1)]
        for name, (expected, unit) in COUPLINGS.items()
    }
    return np.concatenate([np.asarray(each, dtype=float) for each in Parameters(**parts)])
