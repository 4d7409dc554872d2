"""The errors that a user can fix: one or two lines that name the setting or file and what to do."""

from __future__ import annotations

import contextlib
import errno
import math
from collections.abc import Iterator
from typing import Any

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ADVICE = {
    **dict.fromkeys(_FULL, "; free some space, and run the same command again"),
    errno.EROFS: "; it cannot be written here",
    errno.EEXIST: ", but it is not a folder, nor a link to one",
}

# What is longer, is an input that the error quotes; both ends are kept, since the advice comes last.
_LONGEST = 1000

# How the names of modules begin that are a user's own code.
OWN = "ketscale_own_"


class UserError(Exception):
    """Bad input or a missing capability; the command line prints it and exits with 2.

    Its arguments are its lines. As text they are readable whatever they quote: what cannot be printed is escaped.
    """

    def __str__(self) -> str:
        return "\n".join(_readable(str(line)) for line in self.args)


def is_positive(value: Any) -> bool:
    """Whether what a user gave is a finite number above 0."""
    try:
        return bool(0 < value < math.inf)
    except (TypeError, ValueError, RuntimeError):
        return False


def short(text: object, longest: int = 120) -> str:
    """What a file or a library says, as one printable line of at most `longest` characters."""
    # Cut first, since what is said may be as long as a file.
    line = _printable(" ".join(str(text).split())[: 2 * longest])
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


@contextlib.contextmanager
def within(where: object) -> Iterator[None]:
    """Put a file or a setting before what errors say of something in it."""
    try:
        yield
    except UserError as error:
        raise UserError(*(f"{where}: {each}" for each in error.args)) from None


@contextlib.contextmanager
def damaged(fault: str, advice: str) -> Iterator[None]:
    """Turn whatever a library raises on a damaged file into one line: the fault, what was raised, and the advice.

    For parsers that raise errors of any type, and for nothing else.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        cause = short(f"{type(error).__name__}: {error}")
        raise UserError(f"{fault} ({cause}); {advice}") from None


def in_words(error: BaseException | None) -> str | None:
    """What the command line prints for an error that the user can fix; None for a fault of the program.

    Files that cannot be read or written are the user's, wherever it happens: a disk is full, a folder read-only. So is
    what their own code raises, or leads to; file and line are those of that code.
    """
    place = _place(error)
    if place and isinstance(error, SystemExit):
        return f"{place}: it calls exit({error.code!r}); leave that out"
    if isinstance(error, UserError):
        return _readable(f"{place}: {error}") if place else str(error)
    if place:
        advice = "; install it, or put its file next to it" if isinstance(error, ModuleNotFoundError) else ""
        return _readable(f"{place}: {type(error).__name__}: {short(error, 400)}{advice}")
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _FULL):
        where = "the output" if error.filename is None else error.filename
        return _readable(f"{where}: {error.strerror}{_ADVICE.get(error.errno or 0, '')}")
    return None


def _place(error: BaseException | None) -> str | None:
    """File and line of the user's own code that an error has passed last; None if it has passed none."""
    place = None
    trace = error.__traceback__ if isinstance(error, Exception | SystemExit) else None
    while trace is not None:
        frame, file = trace.tb_frame, trace.tb_frame.f_code.co_filename
        # Code that was made from a text has no file.
        if str(frame.f_globals.get("__name__")).startswith(OWN) and not file.startswith("<"):
            place = f"{file}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _readable(line: str) -> str:
    line, half = _printable(line), _LONGEST // 2
    return line if len(line) <= _LONGEST else f"{line[:half]} ... {line[-half:]}"


def _printable(line: str) -> str:
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in line)
