"""Output where the terminal's or file's encoding lacks what Flux prints: ASCII stands in, one character for one.

A command that has done its work must not fail because it cannot print an `ƒ`; tables keep their columns.
"""

from __future__ import annotations

import codecs
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple, Union

_STANDS_IN = "headrace-ascii"
_PLAIN = {"ƒ": "f", "✔": "y", "✗": "n", "├": "|", "│": "|", "└": "`", "─": "-", "…": "~"}
# What Python has by itself; another way was asked for by the user.
_DEFAULTS = ("strict", "surrogateescape", "backslashreplace")


def settle() -> None:
    """Have stdout and stderr take any text."""
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
        # A byte that no encoding explained when it was read.
        return bytes([ord(char) - 0xDC00]), error.start + 1
    return _PLAIN.get(char, "?"), error.start + 1
