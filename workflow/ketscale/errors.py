"""The error that a user can fix: one or two lines that name the setting or file and what to do."""


class UserError(Exception):
    """Bad input or a missing capability; the command line prints it and exits with 2."""


def short(said: object, longest: int = 120) -> str:
    """What a file or a library says, as one printable line of at most `longest` characters."""
    line = " ".join(str(said).split())
    line = "".join(mark if mark.isprintable() else "?" for mark in line[: 2 * longest])
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
