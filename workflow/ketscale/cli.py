"""The command line.

`ketscale init | train | try | report | compare | export | status | plan | recommend | schema | bench | doctor`, and those that
only rules call. The commands of a group are in a module of `commands`.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ketscale import __version__
from ketscale.commands import Command, data, results, runs, study
from ketscale.errors import UserError, in_words
from ketscale.optional import missing_in_words
from ketscale.words import say

# Their rules are what people call.
OF_RULES = ("launch", "fetch", "prepare")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if it did what was asked, 2 after an error that the user can fix, 130 or 143 if stopped.

    1 of `compare`: something became slower or worse.
    """
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As stderr does: titles and names of files may have characters that the terminal has not.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = options.command(options) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130
    except (Exception, SystemExit) as error:  # of a user's own code too
        message = in_words(error)
        if message is None and isinstance(error, ModuleNotFoundError):
            message = missing_in_words(error, "this command")
        if message is None:
            raise
        say(message)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ketscale",
        description="Train hybrid quantum-classical models fast, and measure which simulator, device and kind of "
        "parallelism is fastest.",
        # A long path in --version stays on its line.
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"ketscale {__version__} from {Path(__file__).resolve().parent}",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Command, text: str, detail: str = "") -> argparse.ArgumentParser:
        description = f"{text}. {detail}".strip()
        if name in OF_RULES:
            sub = commands.add_parser(name, description=description)
        else:
            sub = commands.add_parser(name, help=text, description=description)
        sub.set_defaults(command=function)
        return sub

    for group in (runs, data, results, study):
        group.add(command)
    sub = command(
        "schema", _schema, "Print the JSON schema of configs", "Editors use it to complete and check a file."
    )
    sub.add_argument("of", nargs="?", choices=("config", "site"), default="config", help="default: config")

    sub = command(
        "bench",
        _bench,
        "Time simulators, models, dynamics and more against each other, in a checkout",
        "`ketscale bench NAME --help` has the options of simulators, table, models, dynamics, gates, chains, costs, pulses or grams.",
    )
    # What has a parser of its own is handed over as it is.
    sub.add_argument("arguments", nargs=argparse.REMAINDER, metavar="NAME ...", help="see docs/benchmarks.md")
    command("doctor", _doctor, "Say what this machine can run, and what each missing thing would enable")
    return parser


def _schema(options: argparse.Namespace) -> None:
    from ketscale.config import published_schema, schema
    from ketscale.jobs.slurm.site import SiteFile
    from ketscale.problems.registry import FAMILIES

    print(json.dumps(published_schema(FAMILIES) if options.of == "config" else schema(SiteFile), indent=1))


def _bench(options: argparse.Namespace) -> None:
    """Hand over to the benchmarks, which are next to `workflow` in a checkout and not part of an installed package."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / "benchmarks" / "command.py").is_file():
        raise UserError(
            "the benchmarks are no part of the installed package: get a checkout of KetScale's repository, and call "
            "`ketscale bench` of the environment that `make setup` makes there"
        )
    sys.path.insert(0, str(checkout))
    from benchmarks import command

    command.main(options.arguments)


def _doctor(options: argparse.Namespace) -> int:
    from ketscale.jobs.doctor import diagnose

    return diagnose()
