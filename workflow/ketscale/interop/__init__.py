"""KetScale's circuits from other packages: PennyLane's devices and QNodes, and what else others are used to."""
