"""The error that a user can fix: one or two lines that name the setting or file and what to do."""


class UserError(Exception):
    """Bad input or a missing capability; the command line prints it and exits with 2."""
