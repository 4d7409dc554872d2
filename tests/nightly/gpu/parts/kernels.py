"""What the compiler reports of the kernels for this GPU, or for an sm_90 where there is none: compiling needs no GPU."""

from __future__ import annotations

import torch

from tests.nightly.gpu.kernels import KERNELS, SHARED_BYTES, resources
from tests.nightly.gpu.measure import Part

# The sizes of each kind of block first.
QUBITS = (8, 12, 4, 6, 10, 2, 11, 9, 7, 5, 3)


def measure(part: Part) -> None:
    """A row for each kernel, size and precision."""
    arch = 90
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        arch = 10 * major + minor
    if arch not in SHARED_BYTES:
        part.say(arch=arch, skipped=f"the limits of sm_{arch} are not known here")
        return
    for dtype in (torch.float32, torch.float64):
        for qubits in QUBITS:
            for kernel in KERNELS:
                if part.left() < 3:
                    part.say(kernel=kernel, qubits=qubits, skipped="the time was over")
                    return
                part.say(**resources(kernel, qubits, dtype, arch)._asdict())
