"""Published claims: the ledger, its executable rules, and the verdicts that records give.

Imports nothing heavy, since the Snakefile imports it.
"""

from ketscale.analysis.claims.ledger import LEDGER, Claim, load
from ketscale.analysis.claims.table import COLUMNS, table

__all__ = ["COLUMNS", "LEDGER", "Claim", "load", "table"]
