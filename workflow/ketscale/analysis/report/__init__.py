"""The report: one self-contained page that opens with the answers and works offline."""

from __future__ import annotations

from ketscale.analysis.report.page import build, merge

__all__ = ["build", "merge"]
