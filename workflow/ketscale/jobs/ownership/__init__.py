"""The right to train a run or to use the host, the signs of processes that wait, and the runs that are finished."""
