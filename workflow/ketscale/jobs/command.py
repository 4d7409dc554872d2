"""Whether the jobs of Snakemake, which are shell commands, can be started: their `ketscale`, and their length."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from ketscale.errors import UserError
from ketscale.files import opened

PACKAGE = Path(__file__).resolve().parents[1]
# The longest argument that Linux gives to a program, and so the longest shell command of a job (execve(2)).
_LONGEST = 2**17 - 2000


def check_length(study: str, places: str) -> None:
    """Check that a study is short enough for the commands that make its tables, figures and page.

    They would fail after all runs.

    Raises:
        UserError: it is too long.
    """
    if len(shlex.quote(study).encode()) + len(shlex.quote(places).encode()) > _LONGEST:
        raise UserError(
            f"the config is longer than a command may be ({len(study)} characters as JSON): use lists of values instead of "
            "single points, or split the study into several configs"
        )


def check_package() -> None:
    """Check that jobs, which call the `ketscale` that PATH finds first, use the package of this process.

    Raises:
        UserError: there is no such command, or it is of another package.
    """
    command = shutil.which("ketscale")
    if command is None:
        raise UserError(f"no command `ketscale` is in PATH; activate the environment of {sys.executable}")
    with opened(command) as script:
        interpreter = script.readline().removeprefix(b"#!").decode(errors="replace").strip()
    if Path(interpreter).parent == Path(sys.executable).parent:
        return
    # A command of another environment, or one that is no script of Python, says where its package is.
    said = subprocess.run([command, "--version"], capture_output=True, text=True, errors="replace").stdout
    folder = said.strip().partition(" from ")[2]
    if not folder or Path(folder).resolve() != PACKAGE:
        raise UserError(
            f"jobs would call {command}, which is of another package ({folder or 'unknown'}) than the one that "
            f"{sys.executable} imports ({PACKAGE}); activate the environment of that Python"
        )
