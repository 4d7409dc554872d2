"""The commands of `ketscale`, a module for each group; this file has the options that several of them take.

Imports next to nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale import strict_json
from ketscale.errors import UserError

if TYPE_CHECKING:
    from ketscale.config import Config

Command = Callable[[argparse.Namespace], int | None]
# Adds a command: its name, its function, what it does, and perhaps more about that.
Add = Callable[..., argparse.ArgumentParser]


def add_config(parser: Any) -> None:
    """Take the file of a config; the parser may be a group."""
    parser.add_argument(
        "--config", type=Path, default=Path("config.yaml"), help="the study (default: config.yaml)"
    )


def add_source(parser: argparse.ArgumentParser, option: str, text: str) -> None:
    """Take a config, or instead of it JSON in an option."""
    source = parser.add_mutually_exclusive_group()
    add_config(source)
    source.add_argument(option, help=text)


def amount(text: str) -> float:
    """A number of at least 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} should be a number of at least 0")
    return value


def json_object(text: str, option: str) -> dict[str, Any]:
    """The JSON object in an option.

    Raises:
        UserError: it is something else.
    """
    try:
        value = strict_json.loads(text)
    except ValueError as error:
        raise UserError(f"{option}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise UserError(f"{option}: must be a JSON object")
    return value


def load_config(path: Path) -> Config:
    """The config in a file, with its kinds of studies: training and preparation check it as the tables do."""
    from ketscale import analysis

    return analysis.read(path)
