"""Quantum systems under piecewise-constant controls: what evolves them, exact or integrated, and its derivatives.

`ketscale.dynamics` is the front. `system` and `systems` define what evolves, `tasks` the pulses and environments of a batch,
`noise` its rates and `states` what is read from density matrices. `registry` lists the propagators, and `factory` makes
one by its name. The equations become real linear systems (`generators`, in the coordinates of `basis`), which are evolved
as `evolution` says: by `cpu` with machine code, which reads the system from a `table` (`universal`) or is written for it
(`kernels`), as `code` chooses; or by `plain` with torch's operators. `literal` is the published way.
"""
