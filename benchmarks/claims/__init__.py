"""Published claims: the ledger, a rule for each, and the verdicts that the records of a results folder give.

`python -m benchmarks.claims results-control --csv claims.csv` judges those that a study of the folder tests.
"""

from benchmarks.claims.ledger import LEDGER, Claim, load
from benchmarks.claims.verdicts import judged, row, tested

__all__ = ["LEDGER", "Claim", "judged", "load", "row", "tested"]
