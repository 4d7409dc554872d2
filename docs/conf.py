"""The configuration of the documentation: `make docs` builds it, without a network."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))

import ketscale

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "KetScale"
author = "The KetScale developers"
copyright = "2026, The KetScale developers"
version = release = ketscale.__version__

extensions = ["myst_nb"]
exclude_patterns = ["_build", "_generate", "measurements/archive"]
root_doc = "index"

html_theme = "furo"
html_title = f"KetScale {ketscale.__version__}"
html_copy_source = False

myst_heading_anchors = 4
# The notebooks run in every build.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True

logging.getLogger("traitlets").setLevel(logging.WARNING)


def without_archive(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace links to archived measurements, which are in the repository only, by their text."""
    source[0] = re.sub(r"\[([^\]]*)\]\((?:measurements/)?archive/[^)]*\)", r"\1", source[0])


def setup(app: Sphinx) -> None:
    """Register what Sphinx calls."""
    app.connect("source-read", without_archive)
