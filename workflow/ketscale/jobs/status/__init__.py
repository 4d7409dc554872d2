"""`ketscale status`: `survey` finds the state of each run, `estimate` what is left, `report` puts both in words.

Writes nothing and takes no lease. Imports nothing heavy, so that thousands of runs take about a second.
"""
