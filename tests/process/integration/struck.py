"""`ketscale`, whose training a signal hits before a step: STRUCK is the step, the signal, and whom it is sent to.

0 is the process that trains, 1 what has started it, and so on. Of several ranks the second one strikes.
"""

import os
import sys
import time
from typing import Any

import psutil

from ketscale import cli
from ketscale.jobs.started import Signals
from ketscale.training.fit import Fit
from ketscale.training.stack import Stack
from ketscale.training.step import Stepper

AT, SIGNUM, WHOM = map(int, os.environ["STRUCK"].split())
RANK = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK") or "1"
taken, heard = 0, False
heed, take, together, fit = Signals._ask_to_stop, Stepper.take, Stack.take, Fit.run


def noted(*arguments: Any) -> None:
    """Note that a request to stop has come."""
    global heard
    heard = True
    heed(*arguments)


def strike() -> None:
    """Count a step; before the one that was asked for, send the signal, and wait until it has come back from others."""
    global taken
    taken += 1
    if taken == AT and RANK == "1":
        os.kill([os.getpid(), *(one.pid for one in psutil.Process().parents())][WHOM], SIGNUM)
        while not heard:
            time.sleep(0.01)


def struck(*arguments: Any) -> Any:
    """A step."""
    strike()
    return take(*arguments)


def struck_together(*arguments: Any) -> Any:
    """A step of several runs."""
    strike()
    return together(*arguments)


def struck_fit(*arguments: Any) -> None:
    """A fit, which counts as a step."""
    strike()
    fit(*arguments)


if __name__ == "__main__":
    Signals._ask_to_stop, Stepper.take, Stack.take = noted, struck, struck_together  # type: ignore[method-assign]
    Fit.run = struck_fit  # type: ignore[method-assign]
    sys.exit(cli.main())
