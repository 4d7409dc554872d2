"""The report: one self-contained page that opens with the answers and works offline, and the files that go with it.

These are tables and figures with their stamp, one file of all of them to send, and figures for papers.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ketscale.analysis import stamp
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.report.page import rendered
from ketscale.config import Config
from ketscale.files import write_atomic

__all__ = ["build", "papers", "rendered"]

ZIP, PAPERS = "report.zip", "paper"
# What `sha256sum --check` reads in a results folder.
RECORDS = "records.sha256"


def build(config: Config, results: Path, zipped: bool = False) -> None:
    """Write tables, figures and report.html of the records below `results`, and their stamp; also `ZIP` if asked for.

    Raises:
        UserError: a run is missing, stale or refused, and the config is not `partial`.
    """
    analysed = Analysed.of(config, results)
    files = analysed.files()
    stamp.write(results, {**files, stamp.PAGE: rendered(analysed)}, analysed.sources, analysed.complete)
    if zipped:
        sent = {**files, stamp.PAGE: rendered(analysed, records=False)}
        write_atomic(results / ZIP, archive(sent, analysed.sources.records))


def archive(files: Mapping[str, bytes], records: Mapping[str, str]) -> bytes:
    """A ZIP file, equal for equal contents.

    Args:
        files: by their paths in it; the page leads to no record.
        records: the SHA-256 of each record, by its path in the results folder.
    """
    digests = "".join(f"{digest}  {path}\n" for path, digest in sorted(records.items()))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, content in sorted({**files, RECORDS: digests.encode()}.items()):
            # Without a date, which would be the time of this call.
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16
            made.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def papers(config: Config, results: Path) -> None:
    """Write the figures of the records below `results` in the style for papers, and nothing else.

    Raises:
        UserError: a run is missing, stale or refused, and the config is not `partial`.
    """
    folder = results / PAPERS
    folder.mkdir(parents=True, exist_ok=True)
    for name, files in Analysed.of(config, results).drawn(paper=True).items():
        for ending, content in files.items():
            write_atomic(folder / f"{name}.{ending}", content)
