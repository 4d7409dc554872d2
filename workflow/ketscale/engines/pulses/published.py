"""Parameters of the published devices and pulses (SuperGrad, arXiv:2406.18155), GHz and ns."""

# Relative spread of the circuits' energies; the published width, but random numbers of our own.
SPREAD = 0.01
SEED = 42
LATTICE_SEED = 1

# E_C, E_J, and E_L along a chain of fluxoniums, and along the first row of the lattice. Each further row is shifted by
# three columns.
FLUXONIUM = (1.0, 4.0)
CHAIN = (0.9, 1.0, 1.1)
ROW = (1.1, 1.2, 1.0, 0.8, 0.9)

# J_C and J_L between neighbours.
CHAIN_COUPLINGS = (0.020, -0.002)
LATTICE_COUPLINGS = (0.0115, -0.002)

# E_C and E_J along a chain of transmons, and J_C.
CHARGING = (0.105, 0.120, 0.185)
JOSEPHSON = (33.063, 22.234, 30.694)
TRANSMON_COUPLING = 0.012

# Lengths of pulses: gates on each qubit by itself, and on pairs.
ONE_QUBIT = 50.0
CROSS_RESONANCE = 100.0

# Product states of a device with dressed states, which need the undriven Hamiltonian as a matrix: 256 MiB at this size.
MOST_DRESSED = 4096
