"""PennyLane's own tests of devices pass for ketscale.fused, and what they skip is known."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path
from subprocess import run
from xml.etree import ElementTree

import pennylane
import pytest

from tests import ROOT

pytest.importorskip("pytest_mock", reason="PennyLane's tests need pytest-mock: make setup")
pytest.importorskip("flaky", reason="PennyLane's tests need flaky: make setup")

SUITE = Path(pennylane.__file__).parent / "devices" / "tests"

# Why PennyLane skips its tests, by what it says: an interface that it no longer has, a measurement or a gradient that
# the way it is run has not, or what no device of qubits can do.
SKIPPED = (
    "old interface specific|old device interface|analytic mode, cannot test|no warning is raised|must be specified in the device|"
    "non-analytical mode|don't update state information|only runs when shots=None|no error is raised|analytic[- ]mode|"
    "does not support diff_method|only works with (backprop|parameter-shift)|collection skipped|operation not supported|"
    "mixed-state simulator|only works on qutrit devices|do not support CV|does not support custom measurement transforms"
)
# Second derivatives by 'backprop' in autograd, where the device computes vector-Jacobian products alone.
FIRST_ORDER = "not (test_hessian and backprop and autograd)"
# With channels nothing is evaluated by its matrix, as these are, but for Select with a gate on four wires. The last one compares
# the name.
BY_MATRIX = (
    "QSVT or BlockEncode or DoubleExcitationPlus or DoubleExcitationMinus or Select or test_load_device"
)
NOISY = f"{FIRST_ORDER} and not ({BY_MATRIX})"


@pytest.mark.parametrize(
    ("shots", "plugins", "some", "least"),
    [
        ("None", (), FIRST_ORDER, 410),
        ("200000", (), "", 370),
        ("None", ("-p", "tests.nightly.interop.zero_noise"), NOISY, 390),
    ],
)
def test_pennylanes_suite_passes(
    shots: str, plugins: tuple[str, ...], some: str, least: int, tmp_path: Path
) -> None:
    """Its tests with shots compare distributions within tolerances of their own. The last time all circuits have a channel."""
    result = tmp_path / "found.xml"
    options = (
        "--device ketscale.fused --device-kwargs seed=1 -q --tb=short -p no:cacheprovider -p no:xdist --shots"
    )
    where = ["--rootdir", str(SUITE), "-c", str(SUITE / "pytest.ini"), f"--junitxml={result}"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(SUITE),
        *options.split(),
        shots,
        *where,
        *plugins,
        "-k",
        some,
    ]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = run(command, capture_output=True, text=True, cwd=tmp_path, env=variables)
    assert done.returncode == 0, done.stdout[-5000:]
    cases = list(ElementTree.parse(result).iter("testcase"))
    skipped = Counter(skip.get("message") for case in cases for skip in case.iter("skipped"))
    assert not [why for why in skipped if not re.search(SKIPPED, why)]
    assert len(cases) - skipped.total() >= least
