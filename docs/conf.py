"""The configuration of the documentation: `make docs` builds it, without a network."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
for folder in (DOCS.parent, DOCS.parent / "workflow"):
    sys.path.insert(0, str(folder))

from docs._generate import pages  # noqa: E402

import ketscale  # noqa: E402
from ketscale import dynamics  # noqa: E402
from ketscale.engines import pulses  # noqa: E402

project = "KetScale"
author = "The KetScale developers"
copyright = "2026, The KetScale developers"
version = release = ketscale.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "_generate"]
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

autodoc_member_order = "bysource"
autodoc_typehints = "none"
add_module_names = False
default_role = "code"
# Types of other packages: their documentation is not at hand offline.
nitpick_ignore_regex = [("py:.*", ".*")]


logging.getLogger("traitlets").setLevel(logging.WARNING)

# These import their members on first use; autodoc lists what a module has.
for module in (ketscale, dynamics, pulses):
    vars(module).update({name: getattr(module, name) for name in module.__all__})


def plain(app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with code in backticks, blocks of code, and paragraphs 'name: what it is'."""
    paragraphs = "\n".join(lines).strip().split("\n\n")
    lines[:] = [*"\n\n".join(map(_paragraph, paragraphs)).split("\n"), ""]


def _paragraph(text: str) -> str:
    if all(line.startswith("    ") for line in text.split("\n")):
        return f"::\n\n{text}"
    if text.startswith("Example:"):
        return text
    if not text.startswith(("Raises:", "Args:", "Returns:", "Attributes:")):
        text = re.sub(r"\n +", "\n", re.sub(r"\n(?=[\w, ]+: )", "\n\n", text))
    # Outside of code, nothing is markup.
    return re.sub(r"`[^`]*`|[*|_]", lambda found: found[0] if found[0][0] == "`" else f"\\{found[0]}", text)


def foreign(app: Any, what: str, name: str, of: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what a base class of another package adds; None: autodoc decides."""
    home = getattr(of, "__module__", None) or "ketscale"
    return None if home.startswith("ketscale") else True


def setup(app: Any) -> None:
    """Write what is made from the code before the pages are read."""
    app.connect("builder-inited", lambda app: pages.write(DOCS / "_build" / "generated"))
    app.connect("autodoc-skip-member", foreign)
    app.connect("autodoc-process-docstring", plain, priority=400)
