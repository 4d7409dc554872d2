"""`ketscale status`: `survey` finds the state of each run, `report` puts it and what is left in words; it writes nothing."""
