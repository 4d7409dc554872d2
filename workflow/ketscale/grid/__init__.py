"""Runs, studies and paths: the only place that knows a run's axes and the path of its record.

Of KetScale it imports only the error type, so the Snakefile, the command line and the tables can import it cheaply.
"""

from ketscale.grid.backend import BACKENDS, ONE_MESSAGE, Backend
from ketscale.grid.hashing import canonical, config_hash
from ketscale.grid.run import (
    AXES,
    CODE,
    CONSTRAINTS,
    FETCHED,
    HISTORY,
    LAYOUT,
    LAYOUT_PATTERN,
    NAME,
    PATTERN,
    POINT,
    PREDICTIONS,
    PREPARED,
    RECORD,
    RECORDS,
    RUNS,
    TRIED,
    Run,
    layout,
)
from ketscale.grid.size import SizeAxis, decode, encode
from ketscale.grid.study import Study, expand, listed, schedule
