"""Published claims: the ledger, a rule for each, and the verdicts that records give.

Imports nothing heavy, since the Snakefile imports it.
"""

from ketscale.analysis.claims.ledger import LEDGER, Claim, load
from ketscale.analysis.claims.verdicts import judged, tested

__all__ = ["LEDGER", "Claim", "judged", "load", "tested"]
