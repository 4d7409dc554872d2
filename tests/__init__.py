"""The tests: in the folders of the package's rooms, and beside them those of the workflow, of ranks and of SLURM."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
