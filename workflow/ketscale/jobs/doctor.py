"""`ketscale doctor`: what this machine can run, found out by trying."""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs.launch import environment, prefix_here
from ketscale.jobs.provenance import versions
from ketscale.jobs.slurm import queue
from ketscale.optional import EXTRAS, distributions, remedy

# The probes start with the same prefix as a run, so they test what runs get. In a broken world every process is rank
# 0 of 1, and each of them prints.
_MPI_PROBE = (
    "from mpi4py import MPI; w = MPI.COMM_WORLD; n = w.allreduce(1); w.rank or print('world', n, flush=True)"
)
_GLOO_PROBE = (
    "import torch, torch.distributed as d; d.init_process_group('gloo'); t = torch.ones(1); d.all_reduce(t); "
    "d.get_rank() or print('world', int(t), flush=True); d.destroy_process_group()"
)
# How long two ranks may take to start and say so.
_PATIENCE_S = 120.0


class Capability(NamedTuple):
    """Something that a machine may have: whether it is present, what was seen of it, and what it enables."""

    name: str
    present: bool
    detail: str
    enables: str


def diagnose() -> int:
    """Print every finding; 0 if a run in one CPU process can work here, else 1."""
    essential = True
    for each in itertools.chain(_environment(), _machine(), _worlds()):
        print(f"{'ok     ' if each.present else 'missing'}  {each.name}: {each.detail}")
        if not each.present:
            print(f"{'':9}it would enable {each.enables}")
            essential &= each.name != "environment"
    return 0 if essential else 1


def _environment() -> Iterator[Capability]:
    base = "pip install ketscale (in a checkout: make setup)"
    parts = [("environment", "", base, "any run at all")]
    parts += [(f"extra {name}", name, remedy(name), extra.enables) for name, extra in EXTRAS.items()]
    for title, name, install, enables in parts:
        needed = distributions(name).values()
        installed = versions(needed)
        absent = [package for package in needed if package not in installed]
        there = ", ".join(f"{package} {version}" for package, version in installed.items())
        yield Capability(
            title, not absent, f"no {', '.join(absent)}; {install}" if absent else there, enables
        )


def _machine() -> Iterator[Capability]:
    import torch

    cores = f"{len(os.sched_getaffinity(0))} for this process of {os.cpu_count()}"
    yield Capability("cores", True, cores, "ranks and threads")
    count = torch.cuda.device_count()
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(count))
    enables = "the backend gpu, with several GPUs ddp"
    yield Capability("GPU", count > 0, names or f"torch {torch.__version__} sees none", enables)
    try:
        partitions = (
            queue.ask("sinfo", "-h", "-o", "%P %D nodes %c cores %m MB %l").strip().replace("\n", "; ")
        )
        present, detail = bool(partitions), partitions or "sinfo shows no partition"
    except UserError as error:
        present, detail = False, str(error)
    yield Capability("SLURM", present, detail, "`snakemake --profile slurm`")


def _worlds() -> Iterator[Capability]:
    for backend, probe in (("mpi", _MPI_PROBE), ("ddp-cpu", _GLOO_PROBE)):
        run = Run("digits", "vqc", "q4-l3", 64, "default.qubit", backend, 1, 2, 1, "timing", 0)
        yield Capability(f"two ranks of {backend}", *_two_ranks(run, probe), f"the backend {backend}")


def _two_ranks(run: Run, probe: str) -> tuple[bool, str]:
    """Whether two processes that are started as a run's ranks form one world of two, and what was seen."""
    try:
        command = f'exec {prefix_here(run)} {shlex.quote(sys.executable)} -c "{probe}"'
    except UserError as error:
        return False, str(error)
    call = ["timeout", "--kill-after=10", f"{_PATIENCE_S:g}", "sh", "-c", command]
    result = subprocess.run(call, env=environment(), capture_output=True, text=True)
    if result.returncode in (124, 137):
        return False, f"no answer in {_PATIENCE_S:g} s"
    worlds = [line for line in result.stdout.splitlines() if line.startswith("world")]
    if worlds == ["world 2"]:
        return True, "one world of two ranks"
    if worlds:
        return False, "two processes that each see a world of one rank: launcher and library do not match"
    return False, (result.stderr.strip().splitlines() or [f"exit status {result.returncode}"])[-1]
