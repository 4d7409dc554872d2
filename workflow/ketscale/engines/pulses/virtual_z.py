"""The Z rotations after a pulse that bring it closest to its target: in software they cost no time.

With the amplitudes M of columns that began as computational states j, and a target T, rows are r_i = sum_j conj(T_ij) M_ij: a
virtual Z gate multiplies them by phases (McKay et al., Phys. Rev. A 96, 022330, 2017, arXiv:1612.00858). They are sums over
columns, so that ranks may share these.

With S(angles) = sum_i r_i exp(i sum_q angles_q b_q(i)), where b_q(i) is the bit of qubit q in i, they maximise |S|^2.
As a function of one angle S is A + B exp(i angle): its largest modulus is |A| + |B|, at angle = arg A - arg B. Doing this
for one qubit after the other never lowers |S|. It may end in a local maximum, hence several starts. Along a ridge, where
angles of several qubits matter only together, it creeps: Newton's method ends what is not done soon. A channel has a sum S_k
of each Kraus operator with the same angles, and the sum of all |S_k|^2 is A + 2 Re(B exp(i angle)), largest at angle = -arg B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.autograd_function import applied
from ketscale.engines.derivatives import ByOperators
from ketscale.errors import UserError
from ketscale.private_torch import transforms_active
from ketscale.shapes import Complex, Float64

# A start ends when no derivative of |S| is larger, relative to the sum of all |r_i|, or after so many sweeps over the qubits,
# each of which follows a step of Newton's after the first ones.
GRADIENT = 1e-12
SWEEPS = 10_000
PLAIN_SWEEPS = 200
# Curvatures of |S|^2, relative to the square of that sum, that are rounding.
FLAT = 1e-14
# Steps of Newton's method. Its curvatures have no derivatives, so those of the result are exact to the order 2 STEPS + 1.
STEPS = 3
# Starts at random angles, in addition to those at zero and at the angles that align the rows of single bits.
RANDOM_STARTS = 14


def largest_overlap(rows: torch.Tensor) -> torch.Tensor:
    """max |S|^2, real (...), differentiable in the rows.

    At a maximum the angles' own changes do not matter once. Further derivatives are those of `STEPS` steps of Newton's from the
    angles that were found, exact to the seventh.

    rows: r, complex (..., 2**n).

    Raises:
        UserError: there are not 2**n rows.
    """
    (overlap,) = applied(_LargestOverlap(), rows)
    return overlap


class _Batched(ByOperators):
    """A function of any batch, of which copies by torch.func.vmap are more."""

    def many(self, members: int, mapped: Sequence[bool], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.many`."""
        return applied(copy(self), *tensors)


class _LargestOverlap(_Batched):
    """See `largest_overlap`."""

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (rows,) = tensors
        # By NumPy, in a third of the time of torch's operators.
        angles = best_angles(rows).cpu().numpy()
        factors = phases(angles.reshape(rows.numel() // rows.shape[-1], angles.shape[-1]))
        self._phases = torch.from_numpy(factors).reshape(rows.shape).to(rows)
        return ((rows * self._phases).sum(-1).abs().square(),)

    def plainly(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (rows,), (angles,) = tensors, applied(_Angles(best_angles), tensors[0].detach())
        return (_largest_from(angles, rows[..., :, None] * rows[..., None, :].conj()),)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], needs: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `Differentiable.pull`: by the envelope theorem, which says nothing of second derivatives."""
        if torch.is_grad_enabled() or transforms_active():
            return super().pull(tensors, cotangents, needs)
        factors = self._phases
        return ((cotangents[0] * 2 * (tensors[0] * factors).sum(-1))[..., None] * factors.conj(),)


def largest_form(form: torch.Tensor) -> torch.Tensor:
    """max sum_ij W_ij exp(i sum_q angles_q (b_q(i) - b_q(j))), real (...), differentiable in W; of r r^+ it is `largest_overlap`.

    form: W, Hermitian and without negative eigenvalues, complex (..., 2**n, 2**n). Derivatives: as for `largest_overlap`.

    Raises:
        UserError: there are not 2**n rows.
    """
    (angles,) = applied(_Angles(_angles_of_form), form.detach())
    return _largest_from(angles, form)


def _largest_from(angles: torch.Tensor, form: torch.Tensor) -> torch.Tensor:
    """See `largest_form`: from angles that are best, which have no derivatives themselves."""
    bits = _bits(form)
    for _ in range(STEPS):
        terms = _form_at(form, angles)
        lines = terms.sum(-1)
        slopes = -2 * lines.imag @ bits
        curvatures = 2 * (bits.mT @ (terms.real @ bits) - bits.mT @ (lines.real[..., None] * bits))
        angles = angles - _newton(slopes, curvatures)
    return _form_at(form, angles).sum((-2, -1)).real


def _newton(slopes: torch.Tensor, curvatures: torch.Tensor) -> torch.Tensor:
    """The step of Newton's with slopes (..., n) and second derivatives (..., n, n), 0 in flat directions."""
    # What is not a number, which has no eigenvectors, stays so in the slopes.
    finite = curvatures.detach().nan_to_num(0, 0, 0)
    return (torch.linalg.pinv(finite, rtol=1e-12, hermitian=True) @ slopes[..., None])[..., 0]


def _form_at(form: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """The terms of the sum, (..., 2**n, 2**n)."""
    phases = _phases_at(angles, form)
    return form * (phases[..., :, None] * phases[..., None, :].conj())


def best_angles(rows: Complex[torch.Tensor, "*batch rows"]) -> Float64[torch.Tensor, "*batch qubits"]:
    """The angles of the Z rotations diag(1, exp(i angle)), one a qubit, in rad from -pi to pi, fp64 (..., n), found on the CPU.

    Raises:
        UserError: there are not 2**n rows.
    """
    amplitudes = rows.detach().cpu().numpy().astype(np.complex128)
    angles = _best_angles(amplitudes[..., None, :] if amplitudes.ndim else amplitudes)
    return torch.from_numpy(angles).to(rows.device)


def _best_angles(rows: Amplitudes) -> Angles:
    """The angles (..., n) at which the sum of |S_k|^2 is largest, of rows (..., k, 2**n)."""
    qubits = rows.shape[-1].bit_length() - 1 if rows.ndim else 0
    if not rows.ndim or rows.shape[-1] != 2**qubits:
        raise UserError(
            f"rows: virtual Z needs one row for each of 2**n states, not {rows.shape[:-2] + rows.shape[-1:]}"
        )
    if not qubits or not rows.size:
        return np.zeros((*rows.shape[:-2], qubits))
    members = rows.reshape(-1, *rows.shape[-2:])
    scale = np.hypot.reduce(np.abs(members).sum(-1), 1)
    angles = _starts(members, qubits)
    going = np.arange(len(members))
    for sweep in range(SWEEPS):
        each = members[going].repeat(angles.shape[1], 0)
        part = angles[going].reshape(len(each), qubits)
        if sweep >= PLAIN_SWEEPS:
            part = _stepped(each, part)
        steepest = _sweep(each, part).reshape(len(going), -1).max(1)
        angles[going] = part.reshape(len(going), -1, qubits)
        # Written so that rows that are not numbers end it too.
        going = going[steepest > GRADIENT * scale[going]]
        if not len(going):
            break
    starts = angles.shape[1]
    reached = _size(_terms(members.repeat(starts, 0), angles.reshape(-1, qubits)))
    best = angles[np.arange(len(members)), reached.reshape(-1, starts).argmax(1)]
    result: Angles = np.angle(np.exp(1j * best)).reshape(*rows.shape[:-2], qubits)
    return result


def _phases_at(angles: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """exp(i sum_q angles_q b_q(i)), (..., 2**n)."""
    return torch.exp(1j * (angles @ _bits(rows).mT))


def _bits(rows: torch.Tensor) -> torch.Tensor:
    """b_q(i), real (2**n, n)."""
    count = rows.shape[-1]
    places = torch.arange(count.bit_length() - 2, -1, -1, device=rows.device)
    return (torch.arange(count, device=rows.device)[:, None] >> places & 1).to(rows.dtype.to_real())


class _Angles(_Batched):
    """The angles that a search finds for rows or forms, without derivatives."""

    def __init__(self, search: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._search = search

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self._search(tensors[0]).to(tensors[0].real),)


def _angles_of_form(form: torch.Tensor) -> torch.Tensor:
    """The angles of `largest_form`, whose rows are those of Kraus operators."""
    form_values = form.cpu().numpy().astype(np.complex128)
    finite = np.isfinite(form_values).all((-2, -1), keepdims=True)
    values, vectors = np.linalg.eigh(np.where(finite, form_values, 0))
    kraus = vectors.swapaxes(-2, -1) * np.sqrt(values.clip(min=0))[..., None]
    # The largest first, from which the search begins.
    return torch.from_numpy(_best_angles(np.where(finite, kraus[..., ::-1, :], np.nan)))


Angles = NDArray[np.float64]
Amplitudes = NDArray[np.complex128]


def _starts(members: Amplitudes, qubits: int) -> Angles:
    """(members, starts, n)."""
    first = members[:, 0]
    single = np.angle(first[:, :1]) - np.angle(first[:, 1 << np.arange(qubits)[::-1]])
    random = np.random.Generator(np.random.Philox(key=0)).uniform(-np.pi, np.pi, (RANDOM_STARTS, qubits))
    alike = np.broadcast_to(random, (len(members), *random.shape))
    return np.concatenate([np.zeros_like(single)[:, None], single[:, None], alike], 1)


def _sweep(rows: Amplitudes, angles: Angles) -> NDArray[np.float64]:
    """Set one angle after the other to its best; the largest derivative of each start's |S| that was there before.

    rows: of each start, (starts, k, 2**n). angles: (starts, n).
    """
    (starts, count), qubits = rows.shape[:2], angles.shape[1]
    rotated = _terms(rows, angles)
    steepest = np.zeros(starts)
    for qubit in range(qubits):
        halves = rotated.reshape(starts * count, 2**qubit, 2, -1)
        zero, one = (halves[:, :, bit].sum((1, 2)).reshape(starts, count) for bit in (0, 1))
        product = reduce(np.add, (zero * one.conj()).T)  # one alone keeps the signs of its zeros
        total = np.hypot.reduce(np.abs(zero + one), 1)
        slope = np.abs(product.imag) / np.where(total > 0, total, 1)
        steepest = np.maximum(steepest, slope)
        step = np.angle(product)
        angles[:, qubit] += step
        halves[:, :, 1] *= np.exp(1j * step).repeat(count)[:, None, None]
    return steepest


def _stepped(rows: Amplitudes, angles: Angles) -> Angles:
    """The angles after a step of Newton's for |S|^2, of each start that it brings higher."""
    qubits = angles.shape[1]
    bits = (np.arange(2**qubits)[:, None] >> np.arange(qubits)[::-1] & 1).astype(np.float64)
    count = rows.shape[1]
    rotated = _terms(rows, angles).reshape(-1, 2**qubits)
    total = rotated.sum(-1)[:, None]
    first = rotated @ bits
    second = bits.T @ (rotated[:, :, None] * bits)
    gradient = -2 * (total.conj() * first).imag.reshape(-1, count, qubits).sum(1)
    hessian = 2 * (first.conj()[:, :, None] * first[:, None, :] - total.conj()[:, :, None] * second).real
    hessian = hessian.reshape(-1, count, qubits, qubits).sum(1)
    curvatures, axes = np.linalg.eigh(hessian)
    # Uphill also where |S|^2 curves upwards. Directions without curvature, such as those of rows that are 0, are left.
    scale = np.abs(curvatures)
    along = (axes.mT @ gradient[:, :, None])[:, :, 0]
    curved = scale > FLAT * np.hypot.reduce(np.abs(rows).sum(-1), 1)[:, None] ** 2
    along = np.divide(along, scale, out=np.zeros_like(along), where=curved)
    trial = angles + (axes @ along[:, :, None])[:, :, 0]
    higher = _size(_terms(rows, trial)) > np.hypot.reduce(np.abs(total).reshape(-1, count), 1)
    result: Angles = np.where(higher[:, None], trial, angles)
    return result


def _terms(rows: Amplitudes, angles: Angles) -> Amplitudes:
    """The terms of S for each start, (starts, k, 2**n)."""
    result: Amplitudes = rows * phases(angles)[:, None]
    return result


def _size(terms: Amplitudes) -> NDArray[np.float64]:
    """The root of the sum of all |S_k|^2, (starts,), which is |S| to the bit of a single one."""
    size: NDArray[np.float64] = np.hypot.reduce(np.abs(terms.sum(-1)), 1)
    return size


def phases(angles: Angles) -> Amplitudes:
    """exp(i sum_q angles_q b_q(i)) of angles (starts, n), (starts, 2**n)."""
    result = np.ones((len(angles), 1), dtype=np.complex128)
    for qubit in angles.T:
        pair = np.stack([np.ones_like(qubit), np.exp(1j * qubit)], -1)
        result = (result[:, :, None] * pair[:, None, :]).reshape(len(angles), 2 * result.shape[1])
    return result
