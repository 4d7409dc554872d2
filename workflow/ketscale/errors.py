"""The error that a user can fix: one or two lines that name the setting or file and what to do."""

# What is longer, is an input that the error quotes; both ends are kept, since the advice comes last.
_LONGEST = 1000


class UserError(Exception):
    """Bad input or a missing capability; the command line prints it and exits with 2.

    Its arguments are its lines. As text they are readable whatever they quote: what cannot be printed is escaped.
    """

    def __str__(self) -> str:
        return "\n".join(_readable(str(line)) for line in self.args)


def short(said: object, longest: int = 120) -> str:
    """What a file or a library says, as one printable line of at most `longest` characters."""
    line = " ".join(str(said).split())
    line = "".join(mark if mark.isprintable() else "?" for mark in line[: 2 * longest])
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _readable(line: str) -> str:
    line = "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in line)
    half = _LONGEST // 2
    return line if len(line) <= _LONGEST else f"{line[:half]} ... {line[-half:]}"
