"""The reference of the command line, from its parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from docs._generate.markdown import code, sentence, table

from benchmarks import command
from ketscale.cli import OF_RULES, _parser


def page() -> str:
    """Every command with its options."""
    return "\n\n".join(part for parser in commands() for part in _command(parser) if part)


def commands(parser: argparse.ArgumentParser | None = None) -> Iterator[argparse.ArgumentParser]:
    """The parsers of all commands and benchmarks, without those that only group others."""
    if parser is None:
        yield from commands(_parser())
        yield from commands(command.parser())
        return
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for inner in group.choices.values():
            if inner.prog.split()[-1] not in OF_RULES:
                yield from commands(inner)


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## {parser.prog}"
    yield sentence(parser.description or "")
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield f"```text\n{usage}\n```"
    actions = [action for action in parser._actions if action.dest != "help"]
    yield table(("argument", "meaning"), ((_name(action), sentence(action.help or "")) for action in actions))


def _name(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        return code(action.dest if action.metavar is None else value)
    return code(action.option_strings[-1] + ("" if action.nargs == 0 else f" {value}"))
