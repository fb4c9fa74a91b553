"""ASCII replacements for characters that the encoding of stdout or stderr does not have.

A command that has done its work must not fail because it cannot print an `ƒ`. Each character is replaced by one
character, so that tables keep their columns.
"""

from __future__ import annotations

import codecs
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple, Union

_STANDS_IN = "headrace-ascii"
_PLAIN = {"ƒ": "f", "✔": "y", "✗": "n", "├": "|", "│": "|", "└": "`", "─": "-", "…": "~"}
# Python's default error handlers. Any other handler was chosen by the user, and is kept.
_DEFAULTS = ("strict", "surrogateescape", "backslashreplace")


def settle() -> None:
    """Make stdout and stderr accept any text."""
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) not in _DEFAULTS or not hasattr(stream, "reconfigure"):
            continue
        try:
            "".join(_PLAIN).encode(stream.encoding)
        except UnicodeEncodeError:
            codecs.register_error(_STANDS_IN, _stand_in)
            stream.reconfigure(errors=_STANDS_IN)


def _stand_in(error: UnicodeError) -> Tuple[Union[str, bytes], int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    char = error.object[error.start]
    if "\udc80" <= char <= "\udcff":
        # A byte that could not be decoded when it was read (surrogateescape): write it as it was.
        return bytes([ord(char) - 0xDC00]), error.start + 1
    return _PLAIN.get(char, "?"), error.start + 1
