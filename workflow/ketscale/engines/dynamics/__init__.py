"""Quantum systems under piecewise-constant controls: what evolves them, exact or integrated, and its derivatives.

`ketscale.dynamics` is the front. `system` and `systems` define what evolves, `tasks` the pulses and environments of a batch.
`methods` lists the `propagators`. The equations become real linear systems (`generators`, in the coordinates of `basis`),
which are evolved by `cpu` with machine code (`kernels`) that reads them from a table (`plan`), or by `plain` with torch's
operators. `literal` is the published way.
"""
