"""Sweeps with tangents, as torch calls them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused.higher import Terms, Wanted
from ketscale.engines.circuits.fused.sweeps import Compiled, Request
from ketscale.engines.compiled.kernel import threads_for


def along(
    circuit: Circuit,
    paulis: tuple[str, ...] | None,
    terms: Terms,
    wanted: tuple[bool, ...] | None,
    valued: bool,
) -> tuple[torch.Tensor, ...]:
    """D_k of terms with tangents; or P_k by the wanted operands, followed by D_k if `valued`; see `higher`."""
    inputs, weights, *given = terms.point
    *groups, batch, columns = inputs.shape
    kinds = tuple([kind for kind, there in zip(KINDS, wanted or (), strict=False) if there])
    number = groups[0] if groups else 1
    request = Request(circuit, paulis, inputs.dtype, batch, False, kinds, None, number, len(terms.tangents))
    sweep = compiled(request)
    size, used = 2**circuit.qubits, circuit.weights
    # One state for all samples, or one for each.
    shared = not given or given[0].ndim == len(groups) + 1
    one = shared and (not given or number == 1)
    arguments = sweep.fixed | {
        "input_stride": columns, "input_gradient_stride": columns, "initial_stride": 0 if one else 2 * size,
    }  # fmt: skip
    for suffix, (angles, own, *state) in zip(("", "0", "1"), (terms.point, *terms.tangents), strict=False):
        arguments[f"inputs{suffix}"] = angles.contiguous()
        arguments[f"weights{suffix}"] = (own if own.shape[-1] == used else own[..., :used]).contiguous()
        first = state[0].resolve_conj() if state else sweep.nothing if suffix else sweep.zero
        if shared and not one:
            first = first[:, None].expand(number, batch, size)
        arguments[f"initial{suffix}"] = first.contiguous()
    arguments["valued"] = int(valued)
    results = []
    if "input" in kinds:
        to_inputs = torch.empty_like(arguments["inputs"])
        arguments["input_gradient"] = to_inputs if columns == circuit.inputs else to_inputs.zero_()
        results.append(to_inputs)
    if "weight" in kinds:
        sums = arguments["weight_gradient"] = inputs.new_empty(*groups, used)
        # With a single tile its row is the sum.
        several = sweep.group_tiles > 1
        arguments["weight_rows"] = inputs.new_empty(sweep.tiles, used) if several else sums
        results.append(sums)
    if "initial" in kinds:
        arguments["initial_gradient"] = given[0].new_empty(*groups, batch, size)
        results.append(arguments["initial_gradient"])
    if terms.cotangent is not None:
        arguments["cotangent"] = terms.cotangent.resolve_conj().contiguous()
    if not kinds or valued:
        dtype = inputs.dtype.to_complex() if paulis is None else inputs.dtype
        arguments["out"] = torch.empty(*groups, batch, size if paulis is None else len(paulis), dtype=dtype)
        results.append(arguments["out"])
    if number * batch:
        sweep.run(arguments)
    for place, kind in enumerate(kinds):
        # A sum over the samples that share a tensor; columns that no gate has.
        if kind == "initial" and shared:
            results[place] = results[place].sum(-2)
        elif kind == "weight" and weights.shape[-1] > used:
            results[place] = torch.nn.functional.pad(sums, (0, weights.shape[-1] - used))
    return tuple(results)


KINDS: tuple[Wanted, ...] = ("input", "weight", "initial")


class CompiledTangents(Compiled):
    """The kernels along tangents. zero, nothing: |0...0>, and a tangent of 0, (1, 2**n)."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        plan = self.plan
        self.zero = torch.zeros(1, 2**plan.program.qubits, dtype=self.real.to_complex())
        self.nothing = self.zero.clone()
        self.zero[0, 0] = 1
        self._sweep = "bend" if plan.wanted else f"push{plan.order}"

    def run(self, arguments: dict[str, Any]) -> None:
        """Fill the results among a kernel's arguments."""
        threads = threads_for(self.tiles, self.work)
        scratch = torch.empty(threads * self.plan.scratch_vectors * self.plan.lanes, dtype=self.real)
        self.kernel.run(self._sweep, threads, **arguments, scratch=scratch)
        if self.plan.wanted and self.group_tiles > 1:
            self.kernel.run("collect", **arguments)


@lru_cache(maxsize=1024)
def compiled(request: Request) -> CompiledTangents:
    """The table of a circuit, for the wanted result and gradients along tangents, with its kernels."""
    return CompiledTangents(request)
