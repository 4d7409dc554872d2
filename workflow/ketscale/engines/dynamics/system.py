"""Quantum systems, open or closed: their operators, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.dynamics.basis import (
    commutator,
    dissipator,
    has_all_entries,
    lindblad,
    schroedinger,
    von_neumann,
)
from ketscale.engines.dynamics.generators import Generators
from ketscale.engines.operators import (
    TOLERANCE,
    Term,
    Terms,
    check_hermitian,
    computational_places,
    states_of,
)
from ketscale.errors import UserError
from ketscale.private_torch import is_differentiated, is_mapped

# By name array-likes, kept as complex arrays that cannot be written to, sparse arrays of SciPy's, for kets alone, or terms.
Operators = Mapping[str, Any]
KINDS = ("drift", "controls", "jumps")


@dataclass(frozen=True, eq=False)
class System:
    """A system with H = sum_p parameters[p] drift[p] + sum_k u_k(t) controls[k] and Lindblad operators `jumps`.

    Its state obeys drho/dt = -i [H, rho] + sum_j rate_j (L_j rho L_j^+ - (L_j^+ L_j rho + rho L_j^+ L_j) / 2)
    (Lindblad, Commun. Math. Phys. 48, 119, 1976). The controls u_k are constant over each of a pulse's segments.
    Operators have names, and are matrices of all sites, d x d, or a `Term` on some; their order is that of the columns of a
    pulse, of rates and of parameters. Drift and controls may be tensors with gradients.

    drift: Hermitian; times its parameter it is an angular frequency, so hbar is 1.
    controls: Hermitian. jumps: any matrices; a rate is 1 / time.
    parameters: the usual values, one for each term of the drift.
    targets: pure states (d,) of norm 1 that a pulse may aim at.
    rates: the usual rates of the jumps, one for each; without them the system is closed unless rates are given.
    levels: each site's levels, whose product is d, the first site the slowest index; without them there is one site.

    The attributes `drift`, `controls` and `jumps` read as matrices of all sites; what was given for some is in `terms`.

    Raises:
        UserError: an operator has a wrong shape or sites that do not exist; it is not finite or not Hermitian, which is not
            looked at within torch.func; a parameter or rate is missing; a target is not normalised; or the sites have other levels.

    Example:
        >>> system = System({"z": [[1, 0], [0, -1]]}, {"z": 0.3}, {"x": [[0, 1], [1, 0]]}, {"decay": [[0, 1], [0, 0]]})
        >>> system.dimension, system.levels
        (2, (2,))
        >>> system
        System(levels=(2,), parameters={'z': 0.3}, controls=['x'], jumps=['decay'], targets=[])
    """

    drift: Operators
    parameters: Mapping[str, float]
    controls: Operators
    jumps: Operators = field(default_factory=dict)
    targets: Operators = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    levels: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        blocks = {kind: getattr(self, kind) for kind in KINDS}
        operators = {
            f"{kind}.{name}": _operator(f"{kind}.{name}", one, followed=kind != "jumps")
            for kind, each in blocks.items()
            for name, one in (each.sources() if isinstance(each, Terms) else each).items()
        }
        dense = [each for each in operators.values() if not isinstance(each, Term)]
        if not operators:
            raise UserError("a system needs at least one operator: give drift, controls or jumps")
        if not dense and not self.levels:
            raise UserError("levels: give each site's, since no operator is a matrix of all sites")
        d = max(dense[0].shape, default=0) if dense else prod(self.levels)
        for place, each in operators.items():
            if not isinstance(each, Term) and (tuple(each.shape) != (d, d) or not d):
                raise UserError(
                    f"{place}: its shape is {tuple(each.shape)}; all operators must be square matrices of one size"
                )
        object.__setattr__(self, "levels", tuple(self.levels) or (d,))
        if prod(self.levels) != d or min(self.levels) < 1:
            raise UserError(
                f"levels: {self.levels} are not those of {d} states; give each site's, whose product that is"
            )
        for kind in KINDS:
            own = {name: self._term(f"{kind}.{name}", operators[f"{kind}.{name}"]) for name in blocks[kind]}
            object.__setattr__(self, kind, Terms(own, self.levels))
        targets = {name: _array(f"targets.{name}", each) for name, each in self.targets.items()}
        object.__setattr__(self, "targets", targets)
        if list(self.parameters) != list(self.drift):
            raise UserError(
                f"parameters: these are for {list(self.parameters)}; give one for each term of the drift, "
                f"{list(self.drift)}, in its order"
            )
        if self.rates and list(self.rates) != list(self.jumps):
            raise UserError(
                f"rates: these are for {list(self.rates)}; give one for each jump, {list(self.jumps)}, in its order, or none"
            )
        for kind in ("parameters", "rates"):
            numbers = {name: _number(f"{kind}.{name}", each) for name, each in getattr(self, kind).items()}
            object.__setattr__(self, kind, numbers)
        for name, target in self.targets.items():
            if target.shape != (self.dimension,) or abs(np.linalg.norm(target) - 1) > TOLERANCE:
                raise UserError(f"targets.{name}: must be a state of {self.dimension} amplitudes and norm 1")

    def _term(self, place: str, value: Any) -> Term:
        """An operator as a term that fits the sites.

        Raises:
            UserError: it does not, or is of drift or controls and not Hermitian.
        """
        sites, operator = value if isinstance(value, Term) else (range(len(self.levels)), value)
        try:
            size = states_of(sites, self.levels)
        except UserError as error:
            raise UserError(f"{place}: {error}") from None
        if tuple(operator.shape) not in ((size,), (size, size)):
            raise UserError(
                f"{place}: on sites {list(sites)} it must be {size} x {size}, or a diagonal of {size}, not {tuple(operator.shape)}"
            )
        term = Term(tuple(sites), operator)
        # Within torch.func nothing is looked at; and if a trained device diverges, its results say so.
        unknown = is_differentiated(operator) and (is_mapped(operator) or not operator.isfinite().all())
        if not place.startswith("jumps") and not unknown:
            matrices = operator[:, None, None] if term.is_diagonal else operator
            check_hermitian(place, matrices, instead="; instead of an operator a, give a + a^+")
        return term

    def __repr__(self) -> str:
        """What it has, by name: matrices would fill the screen."""
        rates = f"rates={dict(self.rates)}, " if self.rates else ""
        return (
            f"System(levels={self.levels}, parameters={dict(self.parameters)}, controls={list(self.controls)}, "
            f"jumps={list(self.jumps)}, {rates}targets={list(self.targets)})"
        )

    @cached_property
    def dimension(self) -> int:
        """Number d of basis states."""
        return prod(self.levels)

    @property
    def differentiated(self) -> bool:
        """Whether derivatives with respect to operators may be asked for."""
        return any(map(is_differentiated, self.operators))

    @cached_property
    def operators(self) -> tuple[Any, ...]:
        """The operators of drift and controls on their own sites."""
        return tuple(term.operator for kind in KINDS[:2] for term in self.terms(kind).values())

    def terms(self, kind: str) -> Mapping[str, Term]:
        """The operators of a kind (drift, controls or jumps) on the sites that they were given for."""
        terms: Terms = getattr(self, kind)
        return terms.own

    @cached_property
    def parameter_values(self) -> NDArray[np.float64]:
        """The usual parameters (terms,)."""
        return np.array(list(self.parameters.values()), dtype=np.float64)

    @cached_property
    def generators(self) -> Generators:
        """The generators of the real coordinates of rho; their fixed coefficients are the parameters, then the rates.

        The coordinates are those of `tasks.coordinates`.

        Raises:
            UserError: operators are sparse, or have gradients.
        """
        if self.differentiated:
            raise UserError("system: its operators have gradients, which kd.evolve follows")
        operators = (*self.drift.values(), *self.controls.values(), *self.jumps.values())
        if any(not isinstance(each, np.ndarray) for each in operators):
            raise UserError(
                f"density matrices of {self.dimension} states with sparse operators are too large; evolve kets, without rates"
            )
        size, paired = self.dimension**2, has_all_entries(self.dimension)
        of_hamiltonian, of_jump = (von_neumann, lindblad) if paired else (commutator, dissipator)
        fixed = [*map(of_hamiltonian, self.drift.values()), *map(of_jump, self.jumps.values())]
        controlled = map(of_hamiltonian, self.controls.values())
        return Generators(2 * size if paired else size, tuple(fixed), tuple(controlled), paired)

    @cached_property
    def unitary_generators(self) -> Generators:
        """The same without jumps; fixed coefficients are the parameters alone."""
        full = self.generators
        return Generators(full.size, full.fixed[: len(self.drift)], full.controlled, full.paired)

    @cached_property
    def ket_generators(self) -> Generators:
        """The generators of the real and imaginary parts of a ket, in turn; fixed coefficients are the parameters alone."""
        fixed, controlled = (
            tuple(map(schroedinger, terms.values())) for terms in (self.drift, self.controls)
        )
        return Generators(2 * self.dimension, fixed, controlled, paired=True)

    @cached_property
    def computational(self) -> NDArray[np.int64]:
        """The places of the product states of the two lowest levels of each site, (2**sites,), in the order of bits."""
        return computational_places(self.levels)

    @cached_property
    def computational_states(self) -> NDArray[np.complex128]:
        """The states in these places as columns, (d, 2**sites)."""
        places = self.computational
        states = np.zeros((self.dimension, len(places)), dtype=complex)
        states[places, np.arange(len(places))] = 1
        states.flags.writeable = False
        return states

    def hamiltonian(self) -> Any:
        """H without controls at the usual parameters, complex (d, d): an array or, if operators have gradients, a tensor."""
        terms = (each.toarray() if hasattr(each, "toarray") else each for each in self.drift.values())
        parts = [value * term for value, term in zip(self.parameters.values(), terms, strict=True)]
        total: Any = np.zeros((self.dimension, self.dimension), dtype=complex)
        if self.differentiated:
            device = next(each.device for each in self.operators if isinstance(each, torch.Tensor))
            parts = [torch.as_tensor(each, device=device) for each in parts]
            total = torch.from_numpy(total).to(device)
        return sum(parts, start=total)

    def projector(self, target: str) -> NDArray[np.complex128]:
        """|t><t| of a target, d x d.

        Raises:
            UserError: there is no such target.
        """
        if target not in self.targets:
            raise UserError(
                f"target: {target!r} is not one of this system's; choose from {', '.join(self.targets) or 'none'}"
            )
        state = self.targets[target]
        projector: NDArray[np.complex128] = np.outer(state, state.conj())
        return projector


def _number(place: str, value: Any) -> float:
    if getattr(value, "requires_grad", False):
        raise UserError(f"{place}: has a gradient; give the usual value here, and the tensor to evolve")
    if isinstance(value, str) or np.iscomplexobj(value) or not np.isfinite(float(value)):
        raise UserError(f"{place}: {value} is not a finite number")
    return float(value)


def _operator(place: str, value: Any, followed: bool) -> Any:
    """An operator as an array, a sparse array, or a tensor if it is `followed` and one with gradients; or a term with such a one.

    A term's tensor stays one on its device, of which a constant one is copied.
    """
    operator = value.operator if isinstance(value, Term) else value
    stays = (
        isinstance(operator, torch.Tensor)
        and followed
        and (isinstance(value, Term) or is_differentiated(operator))
    )
    if not stays:
        operator = _array(place, operator)
    elif operator.layout != torch.strided or not operator.ndim:
        raise UserError(f"{place}: must be a dense tensor of one or two axes")
    else:
        real = operator.ndim == 1 and not operator.is_complex()
        operator = operator.to(torch.float64 if real else torch.complex128)
        if not is_differentiated(operator):
            operator = operator.detach().clone()
            _check_finite(place, operator.numpy(force=True))
    return value._replace(operator=operator) if isinstance(value, Term) else operator


def _array(place: str, value: Any) -> Any:
    if hasattr(value, "tocsr") and len(value.shape) == 2:
        sparse = value.tocsr().astype(np.complex128)
        sparse.sum_duplicates()
        _check_finite(place, sparse.data)
        return sparse
    if isinstance(value, torch.Tensor) and is_differentiated(value):
        raise UserError(f"{place}: has a gradient; give one to drift, controls, parameters or rates")
    try:
        if isinstance(value, torch.Tensor):
            value = value.resolve_conj().resolve_neg().to_dense().cpu().numpy()
        array = np.array(value.toarray() if hasattr(value, "toarray") else value, dtype=np.complex128)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"{place}: is not an array of numbers, nor a tensor") from None
    if array.ndim == 0:
        raise UserError(f"{place}: is a number, not an array")
    _check_finite(place, array)
    array.flags.writeable = False
    return array


def _check_finite(place: str, values: NDArray[np.complex128]) -> None:
    if not np.isfinite(values).all():
        raise UserError(f"{place}: has entries that are not finite")
