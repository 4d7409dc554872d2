"""Programs with every operation, template and measurement of PennyLane's qubits: functions of four angles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import networkx
import numpy as np
import pennylane as qml
import torch

QUBITS = 4

# A Hermitian matrix, a unitary one, a state of three wires, and a sum whose words do not commute.
HERMITIAN = np.array([[1, 2 - 1j], [2 + 1j, -1]]) / 3
UNITARY = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4, 2)) @ [1, 1j])[0]
STATE = np.array([0.5, 0.1j, -0.3, 0.2, 0.4, 0, 0.1, -0.2j]) / np.sqrt(0.6)
SUM = qml.dot([0.4, -0.3, 0.8], [qml.X(0) @ qml.X(1), qml.Z(1), qml.Y(2) @ qml.Z(0)])
OCCUPIED = np.array([1, 1, 0, 0])
GRAPH = networkx.Graph([(0, 1), (1, 2)])
HALVES = np.sqrt([0.5, 0.3, 0.2])


def spread(t: Any, *shape: int) -> Any:
    """Weights of a template, of the angles."""
    count = int(np.prod(shape))
    complete = qml.math.reshape(qml.math.concatenate([t] * (-(-count // 4)))[:count], shape)
    return complete * qml.math.convert_like(0.2 + 0.1 * np.arange(count).reshape(shape), complete)


def gate(name: str, wires: Sequence[int], angles: int = 0) -> Callable[[Any], Any]:
    return lambda t: getattr(qml, name)(*(t[k] for k in range(angles)), wires=list(wires))


def gates(wires: Sequence[int], angles: int, names: str) -> dict[str, Callable[[Any], Any]]:
    return {name: gate(name, wires, angles) for name in names.split()}


def two(weights: Any, wires: Any) -> None:
    """A block of a tensor network."""
    qml.RY(weights[0], wires[0])
    qml.RX(weights[1], wires[1])
    qml.CNOT(wires)


def step(time: Any, angle: Any, wires: Any) -> None:
    qml.RX(time * angle, wires[0])
    qml.RZ(time, wires[1])


def measured_twice(t: Any) -> None:
    """A wire that is reset and measured again, and what is computed from both outcomes."""
    first = qml.measure(0, reset=True)
    qml.RY(t[0], wires=0)
    second = qml.measure(0)
    qml.cond(first & ~second, qml.X)(1)
    qml.cond(first + second == 1, qml.RZ)(t[1], wires=1)


def of_angle(t: Any) -> Any:
    """RX(t) as a matrix."""
    cosine, sine = qml.math.cos(t / 2) + 0j, -1j * qml.math.sin(t / 2)
    return qml.math.stack([qml.math.stack([cosine, sine], -1), qml.math.stack([sine, cosine], -1)], -2)


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    # Gates.
    **gates([1], 0, "Hadamard H PauliX PauliY PauliZ X Y Z S T SX Identity I WireCut Barrier"),
    **gates([2, 0], 0, "CNOT CZ CY CH SWAP ISWAP SISWAP SQISW ECR"),
    **gates([2, 0, 3], 0, "CCZ CSWAP Toffoli"),
    **gates([1], 1, "RX RY RZ PhaseShift U1"),
    **gates([2, 1], 1, "CRX CRY CRZ ControlledPhaseShift CPhase CPhaseShift00 CPhaseShift01 CPhaseShift10 IsingXX IsingYY "
            "IsingZZ IsingXY PSWAP SingleExcitation SingleExcitationMinus SingleExcitationPlus FermionicSWAP"),
    **gates([2, 0, 3, 1], 1, "DoubleExcitation DoubleExcitationMinus DoubleExcitationPlus OrbitalRotation"),
    **gates([3], 2, "U2"), **gates([3], 3, "Rot U3"), **gates([3, 0], 3, "CRot"),
    "Snapshot": lambda t: qml.Snapshot("here"),
    "GlobalPhase": lambda t: qml.GlobalPhase(t[0], wires=0),
    "GlobalPhase without wires": lambda t: qml.GlobalPhase(t[0]),
    "MultiRZ": lambda t: qml.MultiRZ(t[0], wires=[0, 3, 1]),
    "PauliRot": lambda t: qml.PauliRot(t[0], "XYZ", wires=[3, 1, 2]),
    "PCPhase": lambda t: qml.PCPhase(t[0], dim=3, wires=[0, 1]),
    "MultiControlledX": lambda t: qml.MultiControlledX([0, 3, 1, 2], control_values=[1, 0, 1]),
    "functions of angles": lambda t: qml.RX(qml.math.sin(t[0]) + t[1] ** 2, 2),
    "marker": lambda t: qml.marker("here"),
    # Matrices.
    "DiagonalQubitUnitary": lambda t: qml.DiagonalQubitUnitary(np.exp(1j * np.arange(4)), wires=[1, 3]),
    "DiagonalQubitUnitary of angles": lambda t: qml.DiagonalQubitUnitary(
        qml.math.exp(1j * qml.math.cast(t, "complex128")), wires=[1, 3]),
    "QubitUnitary": lambda t: qml.QubitUnitary(UNITARY, wires=[3, 1]),
    "QubitUnitary of one wire": lambda t: qml.QubitUnitary(1j * qml.RX.compute_matrix(0.3), wires=2),
    "QubitUnitary of angles": lambda t: qml.QubitUnitary(qml.RX.compute_matrix(t[0]), wires=2),
    "ControlledQubitUnitary": lambda t: qml.ControlledQubitUnitary(UNITARY, wires=[0, 2, 3, 1], control_values=[0, 1]),
    "SpecialUnitary": lambda t: qml.SpecialUnitary(t[:3], wires=1),
    "BlockEncode": lambda t: qml.BlockEncode(np.array([[0.1, 0.2], [0.3, 0.4]]), wires=[0, 1]),
    "FABLE": lambda t: qml.FABLE(np.array([[0.1, 0.2], [0.3, -0.2]]), wires=range(3), tol=0),
    # What is made of operations.
    "adjoint": lambda t: qml.adjoint(qml.Rot(t[0], t[1], t[2], wires=1)),
    "adjoint of a function": lambda t: qml.adjoint(qml.StronglyEntanglingLayers)(spread(t, 1, 4, 3), wires=range(4)),
    "adjoint of S": lambda t: qml.adjoint(qml.S(1)),
    "adjoint of evolve": lambda t: qml.adjoint(qml.evolve(SUM, t[0])),
    "adjoint of TrotterProduct": lambda t: qml.adjoint(qml.TrotterProduct(SUM, t[0], n=1, order=2)),
    "adjoint of StatePrep": lambda t: qml.adjoint(qml.StatePrep(STATE, wires=[0, 2, 3])),
    "adjoint of MottonenStatePreparation": lambda t: qml.adjoint(qml.MottonenStatePreparation(STATE, wires=[0, 2, 3])),
    "pow": lambda t: qml.pow(qml.RX(t[0], 1), 3),
    "pow of a rotation by half": lambda t: qml.pow(qml.RX(t[0], 0), 0.5),
    "pow of X by half": lambda t: qml.pow(qml.X(1), 0.5),
    "pow of SWAP by a fraction": lambda t: qml.pow(qml.SWAP([1, 2]), 0.3),
    "pow of a matrix": lambda t: qml.pow(qml.QubitUnitary(UNITARY, wires=[0, 1]), -1),
    "prod": lambda t: qml.prod(qml.RX(t[0], 0), qml.RZ(t[1], 1), qml.CNOT([0, 1])),
    "change_op_basis": lambda t: qml.change_op_basis(qml.Hadamard(1), qml.RZ(t[0], 1)),
    "for_loop": lambda t: qml.for_loop(3)(lambda i: (qml.RX(t[0] * (i + 1), i), None)[1])(),
    "while_loop": lambda t: qml.while_loop(lambda i: i < 3)(lambda i: (qml.RX(t[0], i), i + 1)[1])(0),
    # Controlled.
    "ctrl": lambda t: qml.ctrl(qml.RX(t[0], 1), control=[3, 0], control_values=[0, 1]),
    "ctrl of IsingXX": lambda t: qml.ctrl(qml.IsingXX(t[0], wires=[0, 1]), control=[2, 3], control_values=[0, 1]),
    "permutation": lambda t: qml.QubitUnitary(np.eye(8)[[3, 1, 0, 2, 5, 4, 7, 6]], wires=[3, 0, 2]),
    "adjoint of ctrl of T": lambda t: qml.adjoint(qml.ctrl(qml.T(1), control=[0, 2])),
    "ctrl of prod": lambda t: qml.ctrl(qml.prod(qml.Z(1), qml.GlobalPhase(t[0], wires=1)), control=0),
    "ctrl of GlobalPhase, two controls": lambda t: qml.ctrl(
        qml.GlobalPhase(t[0], wires=1), control=[0, 3], control_values=[0, 1]),
    "ctrl of Hadamard": lambda t: qml.ctrl(qml.Hadamard(1), control=[0, 3], control_values=[0, 0]),
    "ctrl of layers": lambda t: qml.ctrl(qml.StronglyEntanglingLayers, control=3)(spread(t, 1, 3, 3), wires=range(3)),
    **{f"ctrl of {name}": lambda t, make=make: qml.ctrl(make(t), control=0) for name, make in {
        "GlobalPhase": lambda t: qml.GlobalPhase(t[0]),
        "GlobalPhase of a wire": lambda t: qml.GlobalPhase(t[0], wires=1),
        "pow": lambda t: qml.pow(qml.RX(t[0], 1), 2),
        "exp": lambda t: qml.exp(qml.X(1) @ qml.Z(2), 0.5j * t[0]),
        "Identity": lambda t: qml.Identity(1),
        "PauliRot": lambda t: qml.PauliRot(t[0], "XZ", wires=[1, 2]),
        "MultiRZ": lambda t: qml.MultiRZ(t[0], wires=[3, 1]),
        "PCPhase": lambda t: qml.PCPhase(t[0], dim=3, wires=[2, 1]),
        "QubitUnitary": lambda t: qml.QubitUnitary(UNITARY, wires=[1, 2]),
        "QubitUnitary of one wire": lambda t: qml.QubitUnitary(1j * np.eye(2), wires=1),
        "DiagonalQubitUnitary": lambda t: qml.DiagonalQubitUnitary(np.exp(1j * np.arange(4)), wires=[1, 3]),
        "QFT": lambda t: qml.QFT([1, 2]),
        "evolve": lambda t: qml.evolve(qml.X(1) @ qml.Z(2) + 0.3 * qml.Y(2), t[0]),
        "TrotterProduct": lambda t: qml.TrotterProduct(qml.X(1) @ qml.Z(2) + 0.3 * qml.Y(2), t[0]),
        "Select": lambda t: qml.Select([qml.RX(t[0], 2), qml.RZ(t[1], 3)], control=[1]),
        "BasisEmbedding": lambda t: qml.BasisEmbedding([1, 1], wires=[1, 2]),
        "change_op_basis": lambda t: qml.change_op_basis(qml.Hadamard(1), qml.RZ(t[0], 1)),
        **gates([1], 0, "SX"), **gates([1], 1, "U1"), **gates([1], 2, "U2"), **gates([1], 3, "U3"),
        **gates([1, 2], 0, "SWAP ECR ISWAP"), **gates([1, 2], 1, "IsingXY SingleExcitation SingleExcitationPlus FermionicSWAP PSWAP"),
        **gates([2, 1, 3, 4], 1, "DoubleExcitationMinus"),
    }.items()},
    # Exponentials.
    "exp": lambda t: qml.exp(qml.X(0) @ qml.Y(1), -1j * t[0]),
    "exp of a sum": lambda t: qml.exp(qml.X(0) + 0.3 * qml.Z(0), -0.4j),
    "exp of Hermitian": lambda t: qml.exp(qml.Hermitian(HERMITIAN, wires=0), -1j * t[0]),
    "evolve": lambda t: qml.evolve(SUM, t[0]),
    "evolve of commuting words": lambda t: qml.evolve(0.3 * qml.X(0) @ qml.X(1) + 0.7 * qml.Z(0) @ qml.Z(1), t[0]),
    "evolve of an identity": lambda t: qml.evolve(0.4 * qml.I(0) + 0.3 * qml.Z(1), t[0]),
    "evolve of a multiple": lambda t: qml.evolve(qml.s_prod(t[0], qml.Z(2))),
    "evolve with factors": lambda t: qml.evolve(qml.dot([t[0], t[1]], [qml.X(0), qml.Z(0)]), 0.5),
    "evolve of Hermitian": lambda t: qml.evolve(qml.Hermitian(HERMITIAN, wires=0), t[0]),
    "trotterize": lambda t: qml.trotterize(step, n=2, order=2)(t[0], 0.3, wires=[0, 1]),
    "TrotterizedQfunc": lambda t: qml.TrotterizedQfunc(t[0], t[1], qfunc=step, n=2, order=2, wires=[0, 1]),
    "TrotterProduct": lambda t: qml.TrotterProduct(SUM, t[0], n=2, order=2),
    "ApproxTimeEvolution": lambda t: qml.ApproxTimeEvolution(qml.Hamiltonian(*SUM.terms()), t[0], 2),
    "CommutingEvolution": lambda t: qml.CommutingEvolution(
        qml.Hamiltonian([1, -0.5], [qml.X(0) @ qml.X(1), qml.X(2)]), t[0]),
    "QDrift": lambda t: qml.QDrift(SUM, t[0], n=3, seed=1),
    "cost and mixer": lambda t: (
        qml.qaoa.cost_layer(t[0], qml.Z(0) @ qml.Z(1) + 0.5 * qml.Z(2)), qml.qaoa.mixer_layer(t[1], qml.qaoa.x_mixer(range(4)))),
    "xy mixer": lambda t: qml.qaoa.mixer_layer(t[1], qml.qaoa.xy_mixer(GRAPH)),
    # Measurements in the middle.
    "cond of a number": lambda t: qml.cond(True, qml.RX)(t[0], wires=0),
    "cond": lambda t: qml.cond(qml.measure(0), qml.RX)(t[0], wires=1),
    "cond with else": lambda t: qml.cond(qml.measure(0), lambda: qml.RX(t[0], 1), lambda: qml.RZ(t[1], 1))(),
    "measure with reset": lambda t: qml.measure(0, reset=True),
    "measure twice": measured_twice,
    "iterative_qpe": lambda t: qml.iterative_qpe(qml.RZ(t[0], wires=0), aux_wire=3, iters=2),
    # Embeddings and layers.
    "AngleEmbedding": lambda t: qml.AngleEmbedding(t, wires=range(4), rotation="Y"),
    "IQPEmbedding": lambda t: qml.IQPEmbedding(t, wires=range(4), n_repeats=2),
    "QAOAEmbedding": lambda t: qml.QAOAEmbedding(t, spread(t, 2, 8), wires=range(4)),
    "IQP": lambda t: qml.IQP(t, num_wires=4, pattern=[[[0]], [[1]], [[0, 1]], [[1, 2, 3]]], spin_sym=False),
    "BasicEntanglerLayers": lambda t: qml.BasicEntanglerLayers(spread(t, 2, 4), wires=range(4), rotation=qml.RZ),
    "StronglyEntanglingLayers": lambda t: qml.StronglyEntanglingLayers(
        spread(t, 2, 4, 3), wires=range(4), imprimitive=qml.CZ),
    "SimplifiedTwoDesign": lambda t: qml.SimplifiedTwoDesign(t, spread(t, 2, 3, 2), wires=range(4)),
    "RandomLayers": lambda t: qml.RandomLayers(spread(t, 2, 3), wires=range(4), seed=3),
    "ArbitraryUnitary": lambda t: qml.ArbitraryUnitary(spread(t, 15), wires=[1, 3]),
    "TTN": lambda t: qml.TTN(range(4), 2, two, 2, spread(t, 3, 2)),
    "MPS": lambda t: qml.MPS(range(4), 2, lambda weights, wires: two(weights, wires), 2, spread(t, 3, 2)),
    "MERA": lambda t: qml.MERA(range(4), 2, two, 2, spread(t, 5, 2)),
    "TwoLocalSwapNetwork": lambda t: qml.TwoLocalSwapNetwork(range(4), lambda index, **_: qml.CNOT(index), fermionic=False),
    # Chemistry.
    "ParticleConservingU1": lambda t: qml.ParticleConservingU1(spread(t, 1, 3, 2), wires=range(4), init_state=OCCUPIED),
    "ParticleConservingU2": lambda t: qml.ParticleConservingU2(spread(t, 1, 7), wires=range(4), init_state=OCCUPIED),
    "FermionicSingleExcitation": lambda t: qml.FermionicSingleExcitation(t[0], wires=[0, 1, 2]),
    "FermionicDoubleExcitation": lambda t: qml.FermionicDoubleExcitation(t[0], wires1=[0, 1], wires2=[2, 3]),
    "BasisRotation": lambda t: qml.BasisRotation(wires=range(4), unitary_matrix=UNITARY),
    # Algorithms.
    "QFT": lambda t: qml.QFT(range(4)),
    "AQFT": lambda t: qml.AQFT(order=1, wires=range(4)),
    "Permute": lambda t: qml.Permute([2, 3, 0, 1], wires=range(4)),
    "FlipSign": lambda t: qml.FlipSign(5, wires=range(4)),
    "GroverOperator": lambda t: qml.GroverOperator(range(3)),
    "Elbow": lambda t: qml.Elbow([0, 1, 2]),
    "TemporaryAND": lambda t: qml.TemporaryAND([0, 1, 2], control_values=(0, 1)),
    "ControlledSequence": lambda t: qml.ControlledSequence(qml.RX(t[0], wires=3), control=range(3)),
    "QuantumPhaseEstimation": lambda t: qml.QuantumPhaseEstimation(
        qml.PhaseShift(t[0], wires=3), estimation_wires=range(3)),
    "QuantumMonteCarlo": lambda t: qml.QuantumMonteCarlo(
        np.array([0.5, 0.5]), lambda i: np.sin(i) ** 2, target_wires=[0, 1], estimation_wires=[2, 3]),
    "AmplitudeAmplification": lambda t: qml.AmplitudeAmplification(
        qml.prod(qml.Hadamard(0), qml.RY(t[0], 1)), qml.FlipSign(2, wires=[0, 1]), iters=2),
    "Reflection": lambda t: qml.Reflection(qml.prod(qml.RY(t[0], 0), qml.Hadamard(1)), t[1]),
    "HilbertSchmidt": lambda t: qml.HilbertSchmidt(qml.RZ(t[0], wires=1), qml.Hadamard(0)),
    "LocalHilbertSchmidt": lambda t: qml.LocalHilbertSchmidt([qml.RZ(t[0], wires=2), qml.RX(t[1], wires=3)], [qml.CZ([0, 1])]),
    "Select": lambda t: qml.Select([qml.X(2), qml.Z(3), qml.X(2) @ qml.Z(3), qml.S(2)], control=[0, 1]),
    "SelectPauliRot": lambda t: qml.SelectPauliRot(t, control_wires=[0, 1], target_wire=2, rot_axis="X"),
    "PrepSelPrep": lambda t: qml.PrepSelPrep(
        qml.dot([0.5, -0.25, 0.3j], [qml.X(2), qml.Z(3), qml.X(2) @ qml.Z(3)]), control=[0, 1]),
    "Qubitization": lambda t: qml.Qubitization(qml.dot([0.5, -0.25], [qml.X(2), qml.Z(3)]), control=[0]),
    "QSVT": lambda t: qml.QSVT(
        qml.BlockEncode(np.array([[0.1, 0.2], [0.3, 0.4]]), wires=[0, 1]),
        [qml.PCPhase(t[k], dim=2, wires=[0, 1]) for k in range(3)]),
    "qsvt": lambda t: qml.qsvt(
        np.array([[0.1, 0.2], [0.2, -0.4]]), [0, 0.5, 0, 0.3], encoding_wires=[0, 1], block_encoding="embedding"),
    "GQSP": lambda t: qml.GQSP(qml.RZ(0.3, wires=1), spread(t, 3, 3), control=0),
    "CosineWindow": lambda t: qml.CosineWindow(range(3)),
    # Arithmetic.
    "QubitCarry": lambda t: qml.QubitCarry(range(4)),
    "QubitSum": lambda t: qml.QubitSum(range(3)),
    "IntegerComparator": lambda t: qml.IntegerComparator(5, geq=False, wires=range(4)),
    "PhaseAdder modulo": lambda t: qml.PhaseAdder(2, range(3), mod=3, work_wire=3),
    "Adder": lambda t: qml.Adder(3, range(3)),
    "SemiAdder": lambda t: qml.SemiAdder([0], [1, 2], work_wires=[3]),
    "OutAdder": lambda t: qml.OutAdder([0], [1], [2, 3]),
    "Multiplier": lambda t: qml.Multiplier(3, [0, 1], mod=4, work_wires=[2, 3]),
    "OutMultiplier": lambda t: qml.OutMultiplier([0], [1], [2, 3]),
    "OutPoly": lambda t: qml.OutPoly(lambda x, y: x + 2 * y, [[0], [1]], [2, 3]),
    "ModExp": lambda t: qml.ModExp([0], [1], 1, 2, [2, 3]),
    "QROM": lambda t: qml.QROM(["10", "01", "11", "00"], control_wires=[0, 1], target_wires=[2, 3], work_wires=None),
    "SelectOnlyQRAM": lambda t: qml.SelectOnlyQRAM(["1", "0", "1", "1"], control_wires=[0, 1], target_wires=[2]),
    "HybridQRAM": lambda t: qml.HybridQRAM(
        ["1", "0", "1", "1"], control_wires=[0, 1], target_wires=[2], work_wires=[3, 4, 5, 6, 7], k=1),
    "BBQRAM": lambda t: qml.BBQRAM(["1", "0"], control_wires=[0], target_wires=[1], work_wires=[2, 3, 4, 5]),
}  # fmt: skip

# PennyLane decomposes matrices by angles that have no derivative where they are degenerate, and drops rotations by 0.
DEGENERATE: dict[str, Callable[[Any], Any]] = {
    "phase": lambda t: qml.ctrl(qml.PhaseShift(t[0], 0), [1, 2]),
    "phase of zeros": lambda t: qml.ctrl(qml.PhaseShift(t[0], 0), [1, 2, 3], control_values=[0, 1, 0]),
    "rotation": lambda t: qml.ctrl(qml.Rot(t[0], 2 * t[0], -t[1], 0), [1, 2]),
    "u3": lambda t: qml.ctrl(qml.U3(t[0], 2 * t[0], -t[1], 0), [1, 2]),
    "backwards": lambda t: qml.ctrl(qml.adjoint(qml.Rot(t[0], 2 * t[0], -t[1], 0)), [1, 2]),
    "global phase": lambda t: qml.ctrl(qml.GlobalPhase(t[0]), [1, 2]),
    "unitary of angles": lambda t: qml.QubitUnitary(of_angle(t[0]), 0),
    "controlled unitary": lambda t: qml.ControlledQubitUnitary(
        of_angle(t[0]), wires=[1, 0], control_values=[0]
    ),
}
# These take no batch.
SINGLY: dict[str, Callable[[Any], Any]] = {
    name: OPERATIONS[name] for name in ("evolve", "TrotterProduct", "DoubleExcitationPlus")
}


def draws(size: int) -> Any:
    generator = np.random.default_rng(0)
    return (generator.normal(size=(size, size)) + 1j * generator.normal(size=(size, size))) / size


GROWING = qml.X(0) + 1j * qml.Z(0)  # no Hermitian generator

# Matrices that are not unitary act as they are given: PennyLane's decompositions make others of them. m makes a matrix of an
# array of NumPy's.
MATRICES: dict[str, Callable[[Any], Any]] = {
    "Kraus": lambda m: qml.QubitUnitary(m(np.array([[0, 0.3**0.5], [0, 0]])), 0),
    "matrix, two wires": lambda m: qml.QubitUnitary(m(draws(4)), [2, 0]),
    "matrix, three wires": lambda m: qml.QubitUnitary(m(draws(8)), [0, 1, 2]),
    "batch of matrices": lambda m: qml.QubitUnitary(m(np.stack([draws(2), np.diag([1, 0.5])])), 0),
    "controlled by zeros": lambda m: qml.ctrl(qml.QubitUnitary(m(draws(2)), 1), [0, 2], control_values=[0, 1]),
    "controlled, two wires": lambda m: qml.ControlledQubitUnitary(m(draws(4)), [0, 1, 2]),
    "adjoint of controlled": lambda m: qml.adjoint(qml.ctrl(qml.QubitUnitary(m(draws(2)), 0), 1)),
    "inverse": lambda m: qml.pow(qml.QubitUnitary(m(draws(2)), 0), -1),
    "controlled product": lambda m: qml.ctrl(qml.prod(qml.QubitUnitary(m(draws(2)), 0), qml.RX(0.3, 1)), 2),
    "select": lambda m: qml.Select([qml.QubitUnitary(m(draws(2)), 0), qml.X(0)], control=2),
    "controlled projector": lambda m: qml.ctrl(qml.Projector([1], 0), 1),
    "controlled growth": lambda m: qml.ctrl(qml.evolve(GROWING, 0.3), 1),
    "adjoint of a power": lambda m: qml.adjoint(qml.pow(qml.adjoint(qml.evolve(GROWING, 0.3)), -1)),
    "adjoint of a matrix' growth": lambda m: qml.adjoint(qml.evolve(qml.QubitUnitary(m(draws(2)), 0), 0.3)),
    "adjoint of evolution": lambda m: qml.adjoint(qml.evolve(qml.Hermitian(m(HERMITIAN), 0), 0.3)),
}  # fmt: skip
GIVEN: dict[str, Callable[[Any], Any]] = {
    f"{name} of {library}": partial(lambda each, kind, t: each(kind), each, kind)
    for name, each in MATRICES.items() for library, kind in (("NumPy", np.array), ("torch", torch.tensor))
}  # fmt: skip

# States that are prepared, after gates and at the start of a circuit.
PREPARED: dict[str, Callable[[Any], Any]] = {
    "BasisState": lambda t: qml.BasisState(np.array([1, 0, 1]), wires=[0, 2, 3]),
    "BasisEmbedding": lambda t: qml.BasisEmbedding(5, wires=range(4)),
    "StatePrep": lambda t: qml.StatePrep(STATE, wires=[0, 2, 3]),
    "StatePrep, padded": lambda t: qml.StatePrep(np.array([1, 1, 1]), wires=[0, 2], pad_with=0, normalize=True),
    "StatePrep of angles": lambda t: qml.StatePrep(t, wires=[0, 2], normalize=True),
    "AmplitudeEmbedding": lambda t: qml.AmplitudeEmbedding(STATE, wires=range(3)),
    "AmplitudeEmbedding, padded": lambda t: qml.AmplitudeEmbedding(
        np.arange(1, 6), wires=range(3), pad_with=0.3, normalize=True),
    "Superposition": lambda t: qml.Superposition(HALVES, [[0, 0], [0, 1], [1, 1]], wires=[0, 1], work_wire=3),
    "MottonenStatePreparation": lambda t: qml.MottonenStatePreparation(STATE, wires=range(3)),
    "MultiplexerStatePreparation": lambda t: qml.MultiplexerStatePreparation(STATE, wires=range(3)),
    "QROMStatePreparation": lambda t: qml.QROMStatePreparation(np.sqrt([0.5, 0.5]), wires=[0], precision_wires=[1, 2]),
    "MPSPrep": lambda t: qml.MPSPrep([np.eye(2) / np.sqrt(2), np.eye(2)], wires=[0, 1], work_wires=[2]),
    "ArbitraryStatePreparation": lambda t: qml.ArbitraryStatePreparation(spread(t, 6), wires=[1, 3]),
    "UCCSD": lambda t: qml.UCCSD(
        t[:3], range(4), s_wires=[[0, 1, 2], [1, 2, 3]], d_wires=[[[0, 1], [2, 3]]], init_state=OCCUPIED),
    "kUpCCGSD": lambda t: qml.kUpCCGSD(spread(t, 1, 6), wires=range(4), k=1, delta_sz=0, init_state=OCCUPIED),
    "GateFabric": lambda t: qml.GateFabric(spread(t, 2, 1, 2), wires=range(4), init_state=OCCUPIED, include_pi=True),
    "AllSinglesDoubles": lambda t: qml.AllSinglesDoubles(
        t[:3], range(4), hf_state=OCCUPIED, singles=[[0, 2], [1, 3]], doubles=[[0, 1, 2, 3]]),
}  # fmt: skip

MEASUREMENTS: dict[str, Callable[[], Any]] = {
    **{f"expval of {name}": partial(lambda name: qml.expval(getattr(qml, name)(1)), name) for name in ["X", "Y", "Z", "Hadamard", "I"]},
    "expval of a product": lambda: qml.expval(qml.X(0) @ qml.Y(2)),
    "expval of a product on one wire": lambda: qml.expval(qml.prod(qml.X(0), qml.X(0), qml.Z(1))),
    "expval of Hamiltonian": lambda: qml.expval(
        qml.Hamiltonian([0.3, -0.2, 2], [qml.X(0), qml.Z(1) @ qml.Y(2), qml.I(0)])),
    "expval of nothing": lambda: qml.expval(0.0 * qml.X(0)),
    "expval of Hermitian": lambda: qml.expval(qml.Hermitian(HERMITIAN, wires=2)),
    "expval of Hermitian on two wires": lambda: qml.expval(qml.Hermitian(UNITARY + UNITARY.conj().T, wires=[3, 1])),
    "expval of Hermitian in a product": lambda: qml.expval(qml.Hermitian(HERMITIAN, wires=2) @ qml.Z(0)),
    "expval of Projector": lambda: qml.expval(qml.Projector([0, 1], wires=[1, 2])),
    "expval of Projector on a state": lambda: qml.expval(qml.Projector(np.array([0.6, 0, 0.8j, 0]), wires=[1, 2])),
    "expval of Projector in a product": lambda: qml.expval(qml.Projector([1], wires=0) @ qml.Z(1)),
    "expval of Projector in a sum": lambda: qml.expval(0.4 * qml.Projector([1], wires=0) + qml.Z(1)),
    "expval of SparseHamiltonian": lambda: qml.expval(
        qml.SparseHamiltonian(SUM.sparse_matrix(wire_order=range(4)), wires=range(4))),
    "expval of Hadamard in a sum": lambda: qml.expval(qml.Hadamard(0) + 0.5 * qml.Z(1)),
    "expval of a power": lambda: qml.expval(qml.Z(0) ** 2),
    "expval of a fermionic word": lambda: qml.expval(
        qml.jordan_wigner(qml.FermiC(0) * qml.FermiA(1) + qml.FermiC(1) * qml.FermiA(0))),
    "expval of a complex sum that is real": lambda: qml.expval(qml.X(0) + 1j * qml.Y(1) - 1j * qml.Y(1)),
    "expval of exp": lambda: qml.expval(qml.exp(qml.Z(0), 0.3)),
    "expval of CNOT": lambda: qml.expval(qml.CNOT([0, 1])),
    "var of a product": lambda: qml.var(qml.X(1) @ qml.Z(0)),
    "var of a sum": lambda: qml.var(0.5 * qml.X(0) + qml.Z(1)),
    "var of Hermitian": lambda: qml.var(qml.Hermitian(HERMITIAN, wires=2)),
    "var of a sum with Hermitian": lambda: qml.var(0.4 * qml.Hermitian(HERMITIAN, wires=0) + qml.X(1)),
    "var of Projector": lambda: qml.var(qml.Projector([0, 1], wires=[1, 2])),
    "probs": lambda: qml.probs(wires=[2, 0]),
    "probs of a product": lambda: qml.probs(op=qml.X(0) @ qml.Y(1)),
    "probs of Hermitian": lambda: qml.probs(op=qml.Hermitian(HERMITIAN, wires=2)),
    "probs of several": lambda: (qml.probs(wires=[0]), qml.probs(wires=[1, 3])),
    "state": lambda: qml.state(),
    "density_matrix": lambda: qml.density_matrix(wires=[2, 0]),
    "vn_entropy": lambda: qml.vn_entropy(wires=[0, 1]),
    "vn_entropy in bits": lambda: qml.vn_entropy(wires=[0], log_base=2),
    "mutual_info": lambda: qml.mutual_info(wires0=[0], wires1=[2, 1]),
    "purity": lambda: qml.purity(wires=[0, 3]),
    "several": lambda: (qml.expval(qml.Z(0)), qml.var(qml.X(0) + qml.Z(0)), qml.probs(wires=[2])),
    "nested": lambda: {"a": [qml.expval(qml.Z(0)), (qml.var(qml.X(0)),)]},
    "expval of a measured wire": lambda: qml.expval(qml.measure(0)),
    "probs of measured wires": lambda: qml.probs(op=[qml.measure(0), qml.measure(1)]),
    "sum of measured wires": lambda: qml.expval(qml.measure(0) + 2 * qml.measure(1)),
}  # fmt: skip


def entangled(t: Any) -> None:
    for wire in range(QUBITS):
        qml.RY(0.3 + 0.4 * wire, wires=wire)
    for wire in range(QUBITS):
        qml.RX(t[wire], wires=wire)
        qml.CNOT([wire, (wire + 1) % QUBITS])


def midway(operation: Callable[[Any], Any], t: Any) -> Any:
    """An operation between gates, by what is measured afterwards."""
    entangled(t)
    operation(t)
    for wire in range(QUBITS):
        qml.U3(0.3 + t[wire], 0.4, 0.1 * wire, wires=wire)
    return qml.expval(qml.Z(0) @ qml.X(1)), qml.expval(qml.Y(2) @ qml.Z(3)), qml.probs(wires=[0, 2])


def first(operation: Callable[[Any], Any], t: Any) -> Any:
    """A state that is prepared at the start."""
    operation(t)
    entangled(t)
    return qml.expval(qml.Z(0) @ qml.X(1)), qml.expval(qml.Y(2) @ qml.Z(3)), qml.probs(wires=[0, 2])


def last(measurement: Callable[[], Any], t: Any) -> Any:
    entangled(t)
    return measurement()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    **{
        name: partial(midway, each)
        for name, each in {**OPERATIONS, **DEGENERATE, **GIVEN, **PREPARED}.items()
    },
    **{f"{name} at the start": partial(first, each) for name, each in PREPARED.items()},
    **{name: partial(last, each) for name, each in MEASUREMENTS.items()},
}
