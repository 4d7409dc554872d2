"""`ketscale train` on a rank; memory runs out on rank 1 while it builds the problem."""

from __future__ import annotations

import os
import sys
from typing import Any

from ketscale import cli
from ketscale.jobs import started


def build(*arguments: Any) -> Any:
    """The problem; on rank 1 as torch fails where it does not fit."""
    if (os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK")) == "1":
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried too much")
    return whole(*arguments)


whole, started.build = started.build, build

if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
