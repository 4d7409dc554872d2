"""Standard algorithms in OpenQASM 2 and 3, each with the outcomes that it must give."""

from __future__ import annotations

from typing import NamedTuple


class Algorithm(NamedTuple):
    """A text, and the probabilities of its basis states as Qiskit writes them, qubit 0 last; the others have none."""

    text: str
    outcomes: dict[str, float]


def _two(body: str, qubits: int) -> str:
    return f'OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[{qubits}];\ncreg c[{qubits}];\n{body}\nmeasure q -> c;\n'


def _three(body: str, qubits: int) -> str:
    return f'OPENQASM 3.0;\ninclude "stdgates.inc";\nqubit[{qubits}] q;\nbit[{qubits}] c;\n{body}\nc = measure q;\n'


# cos(theta / 2)^2 is what stays on the first qubit: 1/3, then half of the rest.
W = """
gate spread(theta) a, b { ry(theta / 2) b; cz a, b; ry(-theta / 2) b; }
x q[0];
spread(1.9106332362490186) q[0], q[1];
cx q[1], q[0];
spread(pi / 2) q[1], q[2];
cx q[2], q[1];
"""

QFT = """
x q[0]; x q[2];
h q[3]; cu1(pi/2) q[2], q[3]; cu1(pi/4) q[1], q[3]; cu1(pi/8) q[0], q[3];
h q[2]; cu1(pi/2) q[1], q[2]; cu1(pi/4) q[0], q[2];
h q[1]; cu1(pi/2) q[0], q[1];
h q[0];
swap q[0], q[3]; swap q[1], q[2];
"""

# Marks 101; two rounds for three qubits.
_ORACLE = "x q[1]; h q[2]; ccx q[0], q[1], q[2]; h q[2]; x q[1];"
_DIFFUSION = "h q; x q; h q[2]; ccx q[0], q[1], q[2]; h q[2]; x q; h q;"
GROVER = f"h q; {2 * (_ORACLE + _DIFFUSION)}"
_MISSED = (1 - 121 / 128) / 7

# b += a for a = 3 on qubits 1, 3 and b = 2 on qubits 2, 4, by ripple carry; qubit 0 is the carry in, 5 the carry out.
ADDER = """
gate majority a, b, c { cx c, b; cx c, a; ccx a, b, c; }
gate unmaj a, b, c { ccx a, b, c; cx c, a; cx a, b; }
x q[1]; x q[3]; x q[4];
majority q[0], q[2], q[1];
majority q[1], q[4], q[3];
cx q[3], q[5];
unmaj q[1], q[4], q[3];
unmaj q[0], q[2], q[1];
"""

# The phase of P(2 pi 3/8) on |1>, in three bits.
PHASE_ESTIMATION = """
x q[3];
h q[0]; h q[1]; h q[2];
cp(2 * pi * 3 / 8) q[0], q[3];
cp(4 * pi * 3 / 8) q[1], q[3];
cp(8 * pi * 3 / 8) q[2], q[3];
swap q[0], q[2];
h q[0];
cp(-pi / 2) q[0], q[1]; h q[1];
cp(-pi / 4) q[0], q[2]; cp(-pi / 2) q[1], q[2]; h q[2];
"""

QASM2 = {
    "qft": Algorithm(_two(QFT, 4), {f"{k:04b}": 1 / 16 for k in range(16)}),
    "grover": Algorithm(_two(GROVER, 3), {f"{k:03b}": 121 / 128 if k == 5 else _MISSED for k in range(8)}),
    "adder": Algorithm(_two(ADDER, 6), {"101110": 1.0}),
}

QASM3 = {
    "ghz": Algorithm(_three("h q[0]; cx q[0], q[1]; cx q[1], q[2];", 3), {"000": 0.5, "111": 0.5}),
    "w": Algorithm(_three(W, 3), {"001": 1 / 3, "010": 1 / 3, "100": 1 / 3}),
    "phase-estimation": Algorithm(_three(PHASE_ESTIMATION, 4), {"1011": 1.0}),
}

# Its angles come in the order a, b, turn of their names, and not in that of their declarations.
VQE = """OPENQASM 3.0;
include "stdgates.inc";
input angle turn;
input angle b;
input angle a;
qubit[3] q;
ry(a) q[0]; ry(b) q[1]; ry(turn) q[2];
cx q[0], q[1]; cx q[1], q[2];
rz(turn) q[0]; u3(a, b, 0.3) q[1]; crx(b) q[2], q[0];
"""
