"""PennyLane's own tests of devices pass for ketscale.fused, and what they skip is known."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from subprocess import run
from xml.etree import ElementTree

import pennylane
import pytest

pytest.importorskip("pytest_mock", reason="PennyLane's tests need pytest-mock: make setup")
pytest.importorskip("flaky", reason="PennyLane's tests need flaky: make setup")

SUITE = Path(pennylane.__file__).parent / "devices" / "tests"

# Why PennyLane skips its tests, by what it says: an interface that it no longer has, a measurement or a gradient that
# the way it is run has not, or what no device of qubits can do.
OLD = {
    "test is old interface specific.",
    "test is specific to old device interface",
    "test specific for old device interface.",
    "test specific to old device interface.",
}
# Exact runs: these tests sample.
NO_SHOTS = {
    "Device is in analytic mode, cannot test sampling.",
    "If shots=None no warning is raised.",
    "Shots must be specified in the device to compute a sampled measurement.",
}
# Runs with shots: these tests compare exact numbers.
SHOTS = {
    "Device is in non-analytical mode.",
    "Some plugins don't update state information when shots is not None.",
    "Test only runs when shots=None",
    "If shots!=None no error is raised.",
    "SparseHamiltonian only supported in analytic mode",
    "test should only be run in analytic mode",
    "test only works with analytic-mode pure statevector simulators",
    "test only works with analytic-mode simulations",
}
OTHERS = {
    # Tests of one way to differentiate skip the others; of JAX and TensorFlow's, where these are missing.
    "device does not support diff_method",
    "test only works with backprop",
    "test only works with parameter-shift",
    "collection skipped",
    # SparseHamiltonian with shots, qutrits and continuous variables.
    "operation not supported on the device",
    "QutritBasisState template only works on qutrit devices",
    "most devices do not support CV",
    "Device does not support custom measurement transforms.",
}


# Second derivatives by 'backprop' in autograd, where the device computes vector-Jacobian products alone.
FIRST_ORDER = ("-k", "not (test_hessian and backprop and autograd)")

# What only a device that draws samples does.
SAMPLED = ("-k", "TestSample or TestTensorSample or TestExpval or TestVar")


@pytest.mark.parametrize(
    ("shots", "some", "least"),
    [
        ("None", FIRST_ORDER, 410),
        ("200000", SAMPLED, 20),
        pytest.param("200000", (), 370, marks=pytest.mark.nightly),
    ],
)
def test_pennylanes_suite_passes(shots: str, some: tuple[str, ...], least: int, tmp_path: Path) -> None:
    """Its tests with shots compare distributions within tolerances of their own."""
    found = tmp_path / "found.xml"
    options = ["--device", "ketscale.fused", "--shots", shots, "-q", "--tb=short", "-p", "no:cacheprovider"]
    options += [
        "--rootdir",
        str(SUITE),
        "-c",
        str(SUITE / "pytest.ini"),
        f"--junitxml={found}",
        "-p",
        "no:xdist",
    ]
    options += ["--device-kwargs", "seed=1", *some]
    done = run(
        [sys.executable, "-m", "pytest", str(SUITE), *options], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout[-5000:]
    cases = list(ElementTree.parse(found).iter("testcase"))
    skipped = Counter(skip.get("message") for case in cases for skip in case.iter("skipped"))
    assert set(skipped) <= OLD | OTHERS | (NO_SHOTS if shots == "None" else SHOTS)
    assert len(cases) - skipped.total() >= least
