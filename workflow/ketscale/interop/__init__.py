"""KetScale's circuits from other packages and in other packages: PennyLane, Qiskit, torch, scikit-learn."""
