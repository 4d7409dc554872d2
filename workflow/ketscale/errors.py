"""The errors that a user can fix: one or two lines that name the setting or file and what to do."""

from __future__ import annotations

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ADVICE = {
    **dict.fromkeys(_FULL, "; free some space, and run the same command again"),
    errno.EROFS: "; it cannot be written here",
    errno.EEXIST: ", but it is not a folder, nor a link to one",
}


class UserError(Exception):
    """Bad input or a missing capability; the command line prints it and exits with 2."""


def in_words(error: BaseException | None) -> str | None:
    """What the command line prints for an error that the user can fix; None for a fault of the program.

    Files that cannot be read or written are the user's, wherever it happens: a disk is full, a folder read-only.
    """
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _FULL):
        where = "the output" if error.filename is None else error.filename
        return f"{where}: {error.strerror}{_ADVICE.get(error.errno or 0, '')}"
    return None
