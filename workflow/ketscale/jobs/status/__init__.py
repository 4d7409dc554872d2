"""`ketscale status`: `survey` sees where each run stands, `estimate` what is left, `report` puts both in words.

It only looks: nothing is written and no lease taken. Imports nothing heavy, and checks no record against its schema,
so that thousands of runs are a matter of a second; `ketscale collect` does check.
"""
