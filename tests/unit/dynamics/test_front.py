"""`ketscale.dynamics`: what is evolved by which arguments, against dense exponentials and closed forms, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import torch

from ketscale import dynamics as kd
from ketscale.dynamics.evolution import Kind
from ketscale.engines import operators
from ketscale.errors import UserError

DURATION, SEGMENTS = 1.7, 4


def random_system() -> kd.System:
    """Two sites of 2 and 3 levels, with two terms, two controls and two jumps of any kind."""
    rng = np.random.default_rng(7)

    def matrices() -> dict[str, Any]:
        return {name: rng.normal(size=(6, 6, 2)) @ [1, 1j] for name in "ab"}

    drift, controls = ({name: each + each.conj().T for name, each in matrices().items()} for _ in range(2))
    return kd.System(drift, {"a": 0.3, "b": -0.2}, controls, matrices(), levels=(2, 3))


SYSTEM = random_system()
GENERATOR = torch.Generator().manual_seed(3)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


CONTROLS = 0.4 * normal(SEGMENTS, 2)
RATES = 0.02 * normal(2).square()
PARAMETERS = 0.3 * normal(2)
KET = torch.complex(normal(6), normal(6))
COLUMNS = torch.complex(normal(6, 4), normal(6, 4))
OPERATOR = torch.complex(normal(6, 6), normal(6, 6))
QUBIT = kd.System({"z": np.diag([1, -1])}, {"z": 0.1}, {"x": np.array([[0, 1], [1, 0]])})
CONTROL = 0.4 * normal(3, 1)
INITIAL: dict[str, torch.Tensor] = {"ket": KET, "unitary": COLUMNS, "density": OPERATOR}


def arguments(kind: str) -> dict[str, torch.Tensor]:
    """All tensors that `evolve` takes for a kind."""
    result = {
        "controls": CONTROLS,
        "duration": torch.tensor(DURATION, dtype=torch.float64),
        "parameters": PARAMETERS,
        "initial": INITIAL[kind],
    }
    return result | ({"rates": RATES} if kind == "density" else {})


@pytest.mark.parametrize("scale", [1.0, 300.0])  # so that segments are evolved by eigenvectors, too
@pytest.mark.parametrize("kind", INITIAL)
def test_any_argument_may_have_a_batch_axis(kind: Any, scale: float) -> None:
    inputs = arguments(kind)
    inputs |= {"controls": scale * inputs["controls"]}
    batches = {name: torch.stack([each, 0.7 * each, 1.2 * each]) for name, each in inputs.items()}
    for name, batch in [*batches.items(), ("all", None)]:
        batch_result = kd.evolve(SYSTEM, kind=kind, **(batches if batch is None else inputs | {name: batch}))
        for number in range(3):
            own = {other: each[number] for other, each in batches.items() if batch is None or other == name}
            torch.testing.assert_close(batch_result[number], kd.evolve(SYSTEM, kind=kind, **inputs | own))


@pytest.mark.parametrize("kind", INITIAL)
def test_a_batch_may_be_empty(kind: Any) -> None:
    none = CONTROLS.expand(0, SEGMENTS, 2)
    shape = kd.evolve(SYSTEM, CONTROLS, DURATION, kind=kind, trajectory=True).shape
    assert kd.evolve(SYSTEM, none, DURATION, kind=kind, trajectory=True).shape == (0, *shape)


@pytest.mark.parametrize("lengths", [None, torch.tensor([0.5, 2.0, 0.1, 1.0], dtype=torch.float64)])
@pytest.mark.parametrize("method, dt", [("exact", None), ("rk4", 0.002)])
@pytest.mark.parametrize("kind", INITIAL)
def test_a_trajectory_has_the_ends_of_segments_of_any_lengths(
    kind: Any, method: Any, dt: Any, lengths: Any
) -> None:
    inputs: dict[str, Any] = {"kind": kind, "method": method, "dt": dt, **arguments(kind)}
    leaves = [inputs["controls"].clone().requires_grad_(), inputs["duration"].requires_grad_()]
    inputs |= {"controls": leaves[0], "duration": leaves[1]}
    factors = torch.linspace(0.5, 3, 2 * SEGMENTS, dtype=torch.float64).view(SEGMENTS, 2).requires_grad_()
    own = [{"rates": RATES * each} if kind == "density" else {} for each in factors]
    if kind == "density":
        inputs["rate_factors"], leaves = factors, [*leaves, factors]
    shares = (
        torch.full((SEGMENTS,), 1 / SEGMENTS, dtype=torch.float64)
        if lengths is None
        else lengths / lengths.sum()
    )
    result, states = kd.evolve(SYSTEM, lengths=lengths, trajectory=True, **inputs), [inputs["initial"]]
    for segment, share, rates in zip(leaves[0].split(1), shares, own, strict=True):
        part = inputs | {"controls": segment, "duration": leaves[1] * share, "initial": states[-1]}
        states.append(kd.evolve(SYSTEM, **part | {"rate_factors": None} | rates))
    error = 1e-8 if dt else 1e-12
    torch.testing.assert_close(result, torch.stack(states), rtol=0, atol=error)
    with torch.no_grad():
        assert torch.equal(kd.evolve(SYSTEM, lengths=lengths, trajectory=True, **inputs), result)
    for number in (1, -1):
        sums = (each[number].abs().sum() for each in (result, states))
        pair = (torch.autograd.grad(each, leaves, retain_graph=True) for each in sums)
        for actual, expected in zip(*pair, strict=True):
            torch.testing.assert_close(actual, expected, rtol=0, atol=100 * error)
    final = kd.evolve(SYSTEM, lengths=None if lengths is None else torch.stack([3 * lengths]), **inputs)
    torch.testing.assert_close(final.view_as(result[-1]), result[-1], rtol=0, atol=1e-13)
    assert kd.error_estimate(SYSTEM, lengths=lengths, **inputs) < error


@pytest.mark.parametrize("kind", ["ket", "density"])
def test_expectation_values_are_those_of_the_states(kind: Any) -> None:
    inputs = arguments(kind) | {"controls": CONTROLS.clone().requires_grad_()}
    observables = torch.stack([OPERATOR + OPERATOR.mH, torch.diag(torch.arange(6.0)).to(torch.complex128)])
    states = kd.evolve(SYSTEM, kind=kind, trajectory=True, **inputs)
    if kind == "ket":
        states = states[:, :, None] * states[:, None].conj()
    expected = torch.einsum("tij,oji->to", states, observables).real
    state = kd.evolve(SYSTEM, kind=kind, trajectory=True, expect=observables, **inputs)
    torch.testing.assert_close(state, expected)
    actual, reference = (
        torch.autograd.grad(each.square().sum(), inputs["controls"])[0] for each in (state, expected)
    )
    torch.testing.assert_close(actual, reference)
    final = kd.evolve(SYSTEM, kind=kind, expect=observables.numpy(), **inputs)
    torch.testing.assert_close(final, state[-1])


def test_one_level_has_a_phase() -> None:
    one = kd.System({"energy": [[0.3]]}, {"energy": 1.0}, {})
    assert kd.evolve(one, None, 2.0).item() == pytest.approx(np.exp(-0.6j))
    assert kd.evolve(one, None, 2.0, kind="density").item() == 1
    assert kd.bare_frame(one).states.shape == (1, 1)


def test_values_are_given_by_name_and_keep_what_is_usual() -> None:
    b = torch.tensor([0.1, 0.4], dtype=torch.float64)
    state = kd.evolve(SYSTEM, CONTROLS, DURATION, parameters={"b": b})
    expected = kd.evolve(SYSTEM, CONTROLS, DURATION, parameters=torch.stack([torch.full_like(b, 0.3), b], 1))
    assert torch.equal(state, expected)
    state = kd.evolve(SYSTEM, CONTROLS, DURATION, rates={"b": 0.2, "a": 0.1})
    assert torch.equal(state, kd.evolve(SYSTEM, CONTROLS, DURATION, rates=[0.1, 0.2]))


def test_a_hermitian_operator_has_the_derivative_by_any_other() -> None:
    initial = torch.diag(torch.tensor([0.7, 0.3, 0.0], dtype=torch.complex128)).requires_grad_()
    torch.autograd.gradcheck(
        lambda arguments: kd.evolve(kd.transmon(t1=20.0), 0.1 * CONTROL.expand(3, 2), 5.0, initial=arguments),
        [initial],
    )


@pytest.mark.parametrize("kind", ["ket", "unitary", "density", "channel"])
def test_the_gradients_of_what_a_batch_shares_are_sums_over_the_batch(kind: Any) -> None:
    system, generator = kd.transmon(), torch.Generator().manual_seed(3)
    batch = 2 * torch.rand(3, 4, 2, generator=generator, dtype=torch.float64)
    initial = torch.eye(3, dtype=torch.complex128)
    initial = initial[0] if kind == "ket" else initial
    shared = [
        torch.tensor([0.3, -0.2], dtype=torch.float64)[: len(system.drift)],
        torch.tensor(1.3, dtype=torch.float64),
        initial,
    ]
    rates = torch.full((len(system.jumps),), 0.1, dtype=torch.float64)
    if kind in ("density", "channel"):
        shared.append(rates)

    def gradients(controls: torch.Tensor) -> list[torch.Tensor]:
        arguments = [each.clone().requires_grad_() for each in shared]
        parameters, duration, state, *others = arguments
        result = kd.evolve(
            system,
            controls,
            duration,
            initial=state,
            kind=kind,
            parameters=parameters,
            rates=others[0] if others else None,
        )
        weights = torch.linspace(0.1, 1, result[0].numel(), dtype=torch.float64).reshape(result.shape[1:])
        return list(torch.autograd.grad((result * weights).real.sum(), arguments))

    each = [gradients(controls[None]) for controls in batch]
    for joint, single in zip(gradients(batch), zip(*each, strict=True), strict=True):
        torch.testing.assert_close(joint, sum(single), rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of torch's compiler
@pytest.mark.parametrize("kind", ["unitary", "channel"])
def test_torch_compile_breaks_its_graph_at_evolutions_and_torch_export_is_refused(kind: Kind) -> None:
    system, gate = kd.transmon(), kd.gate("x")
    states = torch.from_numpy(system.computational_states.copy())

    def loss(controls: torch.Tensor) -> torch.Tensor:
        final = kd.evolve(system, 2 * controls, 20.0, initial=states, kind=kind)
        return 1 - kd.average_gate_fidelity(final, gate, states)

    controls = torch.full((4, 2), 0.1, dtype=torch.float64, requires_grad=True)
    module = torch.nn.Module()
    module.forward = loss
    with pytest.raises(UserError, match="cannot follow an evolution"):
        torch.export.export(module, (controls,))
    # Nothing that the export has made stays.
    expected, result = loss(controls), torch.compile(loss, backend="eager")(controls)
    assert torch.equal(result, expected)
    assert torch.equal(*(torch.autograd.grad(each, controls)[0] for each in (expected, result)))


def test_sparse_operators_are_sites_and_have_frames() -> None:
    dense, sparse = (
        kd.chain([kd.System({"n": make(np.diag([0.0, 1.0]))}, {"n": 0.3}, {}), QUBIT])
        for make in (np.asarray, scipy.sparse.csr_array)
    )
    assert (dense.drift["n_1"] == sparse.drift["n_1"]).all()
    single = kd.System({"n": scipy.sparse.csr_array(np.diag([0.0, 1.0]))}, {"n": 0.3}, {})
    assert kd.dressed_frame(single).energies.tolist() == [0.0, 0.3]
    jump = {"d": scipy.sparse.csr_array(np.array([[0.0, 1.0], [0.0, 0.0]]))}
    rho = kd.evolve(replace(single, jumps=jump), None, 1.0, rates=[0.1], initial=[0, 1])
    assert rho[1, 1].real.item() == pytest.approx(np.exp(-0.1), abs=1e-14)


def test_what_is_evolved_is_what_the_rates_say_unless_it_is_named() -> None:
    noisy = kd.transmon(t1=40.0, t2=30.0)
    controls = 0.1 * normal(5, 2)
    assert kd.evolve(noisy, controls, 20.0).shape == (3, 3)
    assert torch.equal(kd.evolve(noisy, controls, 20.0, kind="ket"), kd.evolve(kd.transmon(), controls, 20.0))
    ket = kd.evolve(kd.transmon(), controls, 20.0)
    assert ket.shape == (3,)
    promoted = kd.evolve(kd.transmon(), controls, 20.0, kind="density", initial=ket)
    torch.testing.assert_close(
        promoted,
        kd.evolve(kd.transmon(), controls, 20.0, kind="density", initial=torch.outer(ket, ket.conj())),
    )


def test_the_images_of_a_channel_are_those_of_each_operator() -> None:
    states = COLUMNS[:, :2]
    state = kd.evolve(SYSTEM, CONTROLS, DURATION, kind="channel", initial=states, rates=RATES)
    for i in range(2):
        for j in range(2):
            operator = torch.outer(states[:, i], states[:, j].conj())
            single = kd.evolve(SYSTEM, CONTROLS, DURATION, initial=operator, rates=RATES)
            torch.testing.assert_close(state[i, j], single, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method, dt", [("exact", None), ("rk4", 0.01), ("euler", 1e-3)])
@pytest.mark.parametrize("kind", ["ket", "unitary", "density", "channel"])
def test_the_estimated_error_is_the_error(kind: Any, method: Any, dt: Any) -> None:
    controls = torch.stack([CONTROLS, 0.5 * CONTROLS])
    result = kd.error_estimate(SYSTEM, controls, DURATION, kind=kind, method=method, dt=dt)
    exact, coarse = (
        kd.evolve(SYSTEM, controls, DURATION, kind=kind, method=each, dt=step)
        for each, step in (("exact", None), (method, dt))
    )
    error = (exact - coarse).flatten(1).norm(dim=1)
    if method == "exact":
        assert result.shape == (2,)
        assert result.max() < 1e-12
    else:
        assert ((result / error > 0.4) & (result / error < 1.1)).all()


# Gates and fidelities


def test_the_average_fidelity_is_the_mean_over_all_states() -> None:
    """Over the 60 states of a 2-design for two qubits: the stabiliser states, products of which and entangled ones."""
    one = [
        np.array(each) / np.linalg.norm(each) for each in ([1, 0], [0, 1], [1, 1], [1, -1], [1, 1j], [1, -1j])
    ]
    products = [np.kron(a, b) for a in one for b in one]
    bell = np.array([1, 0, 0, 1]) / math.sqrt(2)
    clifford = [
        np.linalg.matrix_power(np.array([[0, 1], [1, 0]]), x) @ np.diag([1, 1j**z]) @ turn
        for x in (0, 1)
        for z in range(4)
        for turn in (
            np.eye(2),
            np.array([[1, 1], [1, -1]]) / math.sqrt(2),
            np.array([[1, -1j], [1, 1j]]) / math.sqrt(2),
        )
    ]
    entangled = [np.kron(each, np.eye(2)) @ bell for each in clifford]
    states, target = SYSTEM.computational_states, torch.matrix_exp(1j * (OPERATOR + OPERATOR.mH)[:4, :4])
    final = kd.evolve(SYSTEM, CONTROLS, DURATION, kind="unitary", initial=states)
    block = states.T @ final.numpy()

    def mean(kets: list[Any]) -> float:
        return float(np.mean([abs((target.numpy() @ ket).conj() @ block @ ket) ** 2 for ket in kets]))

    expected = (36 * mean(products) + 24 * mean(entangled)) / 60
    assert kd.average_gate_fidelity(final, target, states).item() == pytest.approx(expected, abs=1e-13)
    channel = kd.evolve(SYSTEM, CONTROLS, DURATION, kind="channel")
    for function in (kd.average_gate_fidelity, kd.process_fidelity):
        of_both = [function(each, target, states).item() for each in (final, channel)]
        assert of_both[0] == pytest.approx(of_both[1], abs=1e-13)
    leakages = [kd.leakage(each, states).item() for each in (final, channel)]
    assert leakages == pytest.approx([1 - np.linalg.norm(block) ** 2 / 4] * 2, abs=1e-13)


def test_relaxation_and_dephasing_lower_the_fidelity_of_waiting_as_they_do_in_closed_form() -> None:
    t1, t2, time = 40.0, 30.0, 25.0
    idle = kd.evolve(kd.transmon(t1=t1, t2=t2), None, time, kind="channel")
    expected = (1 + math.exp(-time / t1) + 2 * math.exp(-time / t2)) / 4
    qubit = kd.transmon().computational_states
    assert kd.process_fidelity(idle, torch.eye(2), qubit).item() == pytest.approx(expected, abs=1e-13)


def test_virtual_z_of_a_channel_turns_the_gate_to_its_best() -> None:
    """Against a search over gates with Z rotations behind them; and a unitary is a channel."""
    system = kd.chain([kd.transmon(0.1, levels=2), kd.transmon(0.05, levels=2)], {(0, 1): 0.024})
    controls = 0.1 * torch.randn(2, 8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rates = {"relaxation_1": 0.01, "dephasing_1": 0.02, "relaxation_2": 0.015, "dephasing_2": 0.005}
    noisy = kd.evolve(system, controls, 20.0, kind="channel", rates=rates)
    closed = kd.evolve(system, controls, 20.0, kind="unitary")
    channel = kd.evolve(system, controls, 20.0, kind="channel", rates=dict.fromkeys(rates, 0.0))
    target = kd.gate("iswap").numpy()
    for function in (kd.average_gate_fidelity, kd.process_fidelity):
        result = function(noisy, target, virtual_z=True)
        for member in range(2):

            def lost(angles: Any, function: Any = function, member: int = member) -> float:
                one, two = (np.diag([1, np.exp(-1j * angle)]) for angle in angles)
                return -float(function(noisy[member], np.kron(one, two) @ target))

            starts = np.random.default_rng(0).uniform(-3, 3, (4, 2))
            best = -min(scipy.optimize.minimize(lost, start, options={"gtol": 1e-8}).fun for start in starts)
            assert result[member].item() == pytest.approx(best, abs=1e-10)
            assert best > function(noisy[member], target).item() + 1e-3
        torch.testing.assert_close(
            function(channel, target, virtual_z=True),
            function(closed, target, virtual_z=True),
            rtol=0,
            atol=1e-12,
        )


def test_targets_may_be_a_batch() -> None:
    states = SYSTEM.computational_states
    final = kd.evolve(SYSTEM, torch.stack([CONTROLS, -CONTROLS]), DURATION, kind="unitary", initial=states)
    channel = kd.evolve(SYSTEM, CONTROLS, DURATION, kind="channel")
    gates = torch.stack([kd.gate("cz"), kd.gate("iswap")])
    for function in (kd.average_gate_fidelity, kd.process_fidelity):
        result, of_channel = function(final, gates, states), function(channel, gates, states)
        for number in range(2):
            assert result[number] == function(final, gates[number], states)[number]
            assert of_channel[number] == pytest.approx(
                function(channel, gates[number], states).item(), abs=1e-14
            )
    kets = torch.nn.functional.normalize(COLUMNS.T, dim=1)
    assert kd.ket_fidelity(kets[0], kets)[0].item() == pytest.approx(1)
    assert kd.ket_fidelity(kets[:2], kets[2:])[1] == kd.ket_fidelity(kets[1], kets[3])


def test_fidelities_of_kets_are_those_of_their_density_matrices() -> None:
    kets = kd.evolve(SYSTEM, torch.stack([CONTROLS, -CONTROLS]), DURATION)
    target = torch.nn.functional.normalize(KET, dim=0)
    projectors = kets[:, :, None] * kets[:, None].conj()
    torch.testing.assert_close(kd.ket_fidelity(kets, target), kd.fidelity(projectors, target))


# Systems of sites


def test_a_chain_has_each_term_at_its_place() -> None:
    a, b = kd.transmon(0.1, levels=3, t1=50.0), kd.transmon(-0.2, levels=2)
    result = kd.chain([a, b, a], {(0, 1): 0.3, (2, 1): np.diag([1.0, 2, 3, 4, 5, 6])}, driven=[(0, 2)])
    assert result.levels == (3, 2, 3)
    np.testing.assert_array_equal(
        result.controls["x_2"], np.kron(np.kron(np.eye(3), b.controls["x"]), np.eye(3))
    )
    lower, sigma = np.diag(np.sqrt([1, 2]), 1), np.diag([1], 1)
    exchange = np.kron(lower.T, sigma) + np.kron(lower, sigma.T)
    np.testing.assert_allclose(result.drift["coupling_1_2"], np.kron(exchange, np.eye(3)))
    swapped = np.diag([1.0, 2, 3, 4, 5, 6]).reshape(3, 2, 3, 2).transpose(1, 0, 3, 2).reshape(6, 6)
    np.testing.assert_allclose(result.drift["coupling_3_2"], np.kron(np.eye(3), swapped))
    far = np.einsum("ab,cd,ef->acebdf", lower.T, np.eye(2), lower).reshape(18, 18)
    np.testing.assert_allclose(result.controls["coupling_1_3"], far + far.T)
    assert result.parameters["coupling_1_2"] == 0.3
    assert result.rates == {
        "relaxation_1": 0.02, "dephasing_1": 0.0, "relaxation_2": 0.0, "dephasing_2": 0.0, "relaxation_3": 0.02, "dephasing_3": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("method, dt", [("exact", None), ("suzuki4", 0.05)])
def test_many_sites_have_sparse_operators_and_the_same_kets(
    method: Any, dt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = [kd.transmon(detuning, levels=2) for detuning in (0.2, -0.1, 0.3)]

    def made() -> kd.System:
        return kd.chain(sites, {(0, 1): 0.03, (2, 0): 0.04})

    dense = made()
    monkeypatch.setattr(operators, "MOST_DENSE", 4)
    sparse = made()
    assert not isinstance(sparse.drift["coupling_1_2"], np.ndarray)
    np.testing.assert_array_equal(sparse.hamiltonian(), dense.hamiltonian())
    controls = 0.1 * normal(4, 6)
    result, expected = (kd.evolve(each, controls, 5.0, method=method, dt=dt) for each in (sparse, dense))
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-14)
    with pytest.raises(UserError, match="density matrices of 8 states with sparse operators are too large"):
        kd.evolve(sparse, controls, 5.0, kind="density")


@pytest.mark.parametrize("sites", [2, 3])
def test_open_chains_relax_and_dephase_and_have_gradients(sites: int) -> None:
    """Uncoupled and undriven, each excited qubit decays with T1 and each coherence with T2."""
    t1, t2, time = 40.0, 50.0, 13.0
    result = kd.chain(
        [kd.transmon(levels=2, t1=t1, t2=t2)] * sites, {(site, site + 1): 0.0 for site in range(sites - 1)}
    )
    plus = np.full(2**sites, 2 ** (-sites / 2))
    length = torch.tensor(time, dtype=torch.float64, requires_grad=True)
    rho = kd.evolve(result, None, length, initial=plus)
    excited, coherence = math.exp(-time / t1) / 2, math.exp(-time / t2) / 2
    expected = np.ones((1, 1))
    for _ in range(sites):
        expected = np.kron(expected, [[1 - excited, coherence], [coherence, excited]])
    assert np.abs(rho.detach().numpy() - expected).max() < 1e-14
    (to_length,) = torch.autograd.grad(rho[-1, -1].real, length)
    assert to_length.item() == pytest.approx(-sites * excited**sites / t1, abs=1e-14)


def test_chains_are_evolved_by_the_integrators_of_pulses_too() -> None:
    """With a coupled pair that is no neighbour, a local term that is not diagonal, and gradients by all that is given."""
    sites = [kd.transmon(detuning, levels=2) for detuning in (0.2, -0.1, 0.3)]
    tilted = kd.System({"x": [[0, 1], [1, 0]]}, {"x": 0.05}, {"z": [[1, 0], [0, 0]]})
    couplings = {(0, 1): 0.03, (2, 0): 0.04, (2, 3): np.diag([0, 0, 0, 0.1])}
    system = kd.chain([*sites, tilted], couplings)
    leaves = {
        "controls": 0.1 * normal(2, 3, 7),
        "duration": torch.tensor([4.0, 5.0], dtype=torch.float64),
        "parameters": torch.tensor(list(system.parameters.values()), dtype=torch.float64),
        "initial": torch.complex(normal(16, 2), normal(16, 2)),
    }
    for each in leaves.values():
        each.requires_grad_()
    result, expected = (
        kd.evolve(system, kind="unitary", trajectory=True, method=method, dt=dt, **leaves)
        for method, dt in (("suzuki4", 0.05), ("exact", None))
    )
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-7)
    weights = torch.complex(normal(*result.shape), normal(*result.shape))
    gradients = [
        torch.autograd.grad((weights * each).sum().real, list(leaves.values())) for each in (result, expected)
    ]
    for own, exact in zip(*gradients, strict=True):
        torch.testing.assert_close(own, exact, rtol=1e-6, atol=1e-6)
    ends = kd.evolve(system, kind="unitary", method="suzuki4", dt=0.05, **leaves)
    torch.testing.assert_close(ends, result[:, -1], rtol=0, atol=1e-13)
    coarse = kd.evolve(system, kind="unitary", method="suzuki4", dt=0.4, **leaves)
    estimate = kd.error_estimate(system, kind="unitary", method="suzuki4", dt=0.4, **leaves)
    torch.testing.assert_close(estimate, (coarse - expected[:, -1]).flatten(1).norm(dim=1), rtol=0.1, atol=0)


@pytest.mark.parametrize("method", ["suzuki4", "interaction4"])
def test_a_task_of_a_chain_has_the_same_bits_in_every_batch(method: str) -> None:
    system = kd.chain([kd.transmon(0.1 * site, levels=2) for site in range(3)], {(0, 1): 0.03, (1, 2): 0.04})
    controls = 0.2 * normal(5, 3, 6)
    parameters = torch.tensor(list(system.parameters.values()), dtype=torch.float64, requires_grad=True)
    each = [kd.evolve(system, one, 4.0, parameters=parameters, method=method, dt=0.2) for one in controls]
    for batch in (1, 2, 5):
        state = kd.evolve(system, controls[:batch], 4.0, parameters=parameters, method=method, dt=0.2)
        assert torch.equal(state, torch.stack(each[:batch]))
    (shared,), (single,) = (
        torch.autograd.grad(torch.stack(list(states)).abs()[:, 1].sum(), parameters)
        for states in (state, each)
    )
    torch.testing.assert_close(shared, single, rtol=1e-12, atol=1e-14)


# What is refused


ZZZ = kd.System({"zzz": np.diag([1, -1, -1, 1, -1, 1, 1, -1])}, {"zzz": 1.0}, {}, levels=(2, 2, 2))


def call_of(**changes: Any) -> Callable[[], object]:
    return lambda: kd.evolve(SYSTEM, **{"controls": CONTROLS, "duration": DURATION} | changes)


@pytest.mark.parametrize(
    "call, message",
    [
        (call_of(method="suzuki4", dt=0.1), "method: a splitting needs sites with equal levels, not (2, 3); use exact"),
        (call_of(method="suzuki4", rates=RATES, dt=0.1), "method: suzuki4 evolves kets and unitaries only"),
        (lambda: kd.evolve(ZZZ, None, 1.0, method="suzuki4", dt=0.1), "method: a splitting needs terms of one or two sites, not 3 as zzz; give kd.Term"),
        (lambda: kd.evolve(kd.chain([QUBIT] * 2, driven=[(0, 1)]), None, 1.0, method="suzuki4", dt=0.1), "method: a splitting needs controls of one site, not two as coupling_1_2"),
        (lambda: kd.fidelity(np.eye(2) / 2, np.eye(2) / 2), "target: is not a pure state of norm 1 (mixed targets are not offered)"),
        (lambda: kd.average_gate_fidelity(np.eye(2), 2 * np.eye(2)), "target: is not unitary, but off by 3.0e+00"),
        (call_of(kind="unitary", rates=RATES), "rates: a unitary has no decay; use kind density"),
        (call_of(kind="unitary", expect=np.eye(6)[None]), "expect: is of a ket or a density matrix, not of a unitary"),
        (call_of(expect=OPERATOR[None]), "observables: is not Hermitian"),
        (call_of(lengths=[1.0, 2.0]), "lengths: must be (4,), one of each segment, not (2,)"),
        (call_of(rates={"c": 0.1}), "rates: this system has no c"),
        (call_of(rates=RATES, rate_factors=[[1.0, 2.0]]), "rate_factors: must be (4, 2), of each segment's rates, not (1, 2)"),
        (call_of(rate_factors=[[1.0, 2.0]]), "rate_factors: there are no rates; give them, with kind density"),
        (call_of(rates={"a": 0.1}), "rates: b is missing, and the system has no usual ones"),
        (call_of(initial=OPERATOR), "initial: (6, 6) may be a density matrix, columns or 6 kets; say kind='density', 'unitary' or 'ket'"),
        (call_of(initial=KET.to(torch.complex64)), "initial: torch.complex64 on cpu does not go with torch.float64"),
        (call_of(controls=CONTROLS[:, :1]), "controls: must be (segments, 2), a column for each of "),
        (call_of(controls=CONTROLS[None, None]), "controls: is of shape (1, 1, 4, 2), and has one batch axis at most"),
        (call_of(controls=1j * CONTROLS.numpy()), "controls: some are complex; give real numbers"),
        (lambda: kd.chain([kd.qubit()] * 2, {(0, 1): 1j}), "parameters.coupling_1_2: 1j is not a finite number"),
        (call_of(duration=-1.0), "duration: -1.0 is not a positive number"),
        (call_of(duration=torch.ones(2).double(), initial=COLUMNS.T[:3]), "batch: arguments have batches of several lengths: duration 2, initial 3"),
        (lambda: kd.leakage(OPERATOR, SYSTEM.computational_states), "final: has 6 columns for 4 computational states; evolve these states, with initial=states"),
        (lambda: kd.chain([kd.qubit()] * 2, {(0, 2): 0.1}), "couplings: (0, 2) are not two sites from 0 to 1"),
        (lambda: kd.transmon(t1=10.0, t2=30.0), "t2: is at most twice t1"),
        (lambda: kd.transmon(t1=10.0, jumps=("x",)), "t1, t2: are those of the jumps relaxation, dephasing"),
        (lambda: kd.System({"z": scipy.sparse.csr_array([[0, 1], [0, 0]])}, {"z": 1.0}, {}), "drift.z: is not Hermitian"),
        (lambda: kd.System({"z": scipy.sparse.csr_array([[np.nan, 1], [1, 0]])}, {"z": 1.0}, {}), "drift.z: has entries that are not finite"),
        (lambda: kd.System({"z": np.eye(2)}, {"z": 1.0}, {}, {"a": np.eye(2)}, rates={"b": 1.0}), "rates: these are for ['b']; give one for each jump, ['a']"),
        (lambda: kd.System({"z": np.eye(2)}, {"z": torch.ones((), requires_grad=True)}, {}), "parameters.z: has a gradient; give the usual value here"),
        (lambda: kd.evolve(QUBIT, 1e200 * CONTROL, 1.0, method="suzuki4", dt=0.1), "controls or parameters: too large for suzuki4 in a segment of 0.3333"),
        (lambda: torch.func.vmap(lambda t: kd.evolve(QUBIT, CONTROL, t, method="rk4", dt=0.1))(torch.ones(2).double()), "duration: torch.func.vmap hides which is longest"),
        (lambda: kd.evolve(QUBIT, np.zeros((3, 1)), 3.0, parameters=[2.9], method="rk4", dt=1.0), "dt: 1.0 is too long a step of rk4"),
        (lambda: kd.chain([QUBIT] * 2, driven=[(0, 1), (0, 1)]), "couplings: there are two terms coupling_1_2"),
        (lambda: kd.chain([QUBIT] * 2, {(0, 1): torch.ones((), requires_grad=True)}), "parameters.coupling_1_2: has a gradient"),
        (lambda: kd.System({}, {}, {}, {"a": torch.eye(2).requires_grad_()}), "jumps.a: has a gradient"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_in_words(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        call()
    assert message in str(caught.value)
