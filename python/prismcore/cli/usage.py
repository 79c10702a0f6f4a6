"""Usage errors that only show once a file was opened, such as a rank that the job does not have."""

from __future__ import annotations


class UsageError(Exception):
    """The command line cannot be; ends in exit code 2."""
