"""`ketscale status`: `survey` finds the state of each run, `estimate` what is left, `report` puts both in words.

Writes nothing and takes no lease. Thousands of runs take about a second, and the estimate a few more where there are hundreds of records.
"""
