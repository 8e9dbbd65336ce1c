"""Mistakes a user can make or meet, each with the exit code that the command line returns for it.

A message is one line: what is wrong, where, and what to do about it. Anything else that escapes is a bug (exit 1).
"""


class SymbreakError(Exception):
    """A condition that is reported in one line `error[NAME]: message`."""

    exit_code = 1
    name = "bug"


class InputError(SymbreakError):
    """The user's configuration, symmetry, file or name does not fit."""

    exit_code = 2
    name = "input"


class EnvironmentFault(SymbreakError):
    """The environment raised, hung, or returned something it must not."""

    exit_code = 3
    name = "environment"


class NumericFault(SymbreakError):
    """A value that must be finite is not."""

    exit_code = 4
    name = "numeric"


class StorageFault(SymbreakError):
    """A file could not be written, read, or trusted."""

    exit_code = 5
    name = "storage"


class Interrupted(SymbreakError):
    """Stopped by a signal, after everything was saved; resuming goes on as if nothing had happened."""

    exit_code = 75
    name = "interrupted"
