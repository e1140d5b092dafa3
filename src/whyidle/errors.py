"""The one error class: its message is one line that names the file and what to do."""

from __future__ import annotations


class WhyidleError(Exception):
    """A problem with the user's input or request, told in one line without a traceback."""
