"""The metrics of pulses. Imports nothing heavy."""

from ketscale.config import Metric

# Errors of the run's integrator; see `curves.deviations`.
DEVIATIONS = (
    Metric("simulator_error", "largest error of a column", "", "down", about="error"),
    Metric("norm_error", "largest deviation of a column's norm from 1", "", "down"),
)

METRICS = (
    Metric("infidelity", "infidelity", "", "down", chance="data"),
    Metric("leakage", "population outside the qubits' states", "", "down"),
    Metric("infidelity_without_z", "infidelity without virtual Z", "", "down"),
    Metric("bounds_exceeded", "largest excess over a bound of the hardware, relative", "", "down"),
    Metric("error_estimate", "estimated error of a trained column", "", "down"),
    *DEVIATIONS,
)
