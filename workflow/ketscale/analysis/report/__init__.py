"""The report: one self-contained page that opens with the answers and works offline."""

from __future__ import annotations

from ketscale.analysis.report.files import build, papers
from ketscale.analysis.report.merged import merge
from ketscale.analysis.report.page import rendered

__all__ = ["build", "merge", "papers", "rendered"]
