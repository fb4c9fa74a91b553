"""The text of an OSError for users, in the form of Flux's C programs: `PATH: No space left on device`.

Python's own text begins with the error number and quotes the path.
"""

from __future__ import annotations

import os


def reason(exc: BaseException) -> str:
    """The reason alone, for messages that already name the path; a single line for any exception."""
    if isinstance(exc, OSError) and exc.strerror is not None:
        return str(exc.strerror)
    return str(exc) or type(exc).__name__


def text_of(exc: BaseException) -> str:
    """The path, if the exception has one, and the reason."""
    if not isinstance(exc, OSError) or exc.strerror is None or not isinstance(exc.filename, (str, bytes)):
        return reason(exc)
    return f"{os.fsdecode(exc.filename)}: {exc.strerror}"


def with_class(exc: BaseException) -> str:
    """Like text_of, with the class of the exception unless it is an OSError; for unexpected exceptions."""
    return text_of(exc) if isinstance(exc, OSError) else f"{type(exc).__name__}: {exc}"
