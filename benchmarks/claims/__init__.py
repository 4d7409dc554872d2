"""Published claims: the ledger, and the verdicts that the records of a results folder give by its rules.

`python -m benchmarks.claims results-control --csv claims.csv` judges those that a study of the folder tests.
"""
