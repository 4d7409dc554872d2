"""`ketscale status`: `survey` finds the state of each run, `report` describes it and the rest; it writes nothing."""
