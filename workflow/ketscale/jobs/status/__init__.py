"""`ketscale status`: `survey` finds the state of each run, `report` puts it and what is left in words; it writes nothing.

`progress` is what a call of Snakemake says of its own runs on the terminal.
"""
