"""What an OSError says to people: `PATH: No space left on device`, as Flux's programs in C print it, without the number
that Python puts before it and the quotes that it puts around the path.
"""

from __future__ import annotations

import os


def reason(exc: BaseException) -> str:
    """Why, for where the path is named already; one line for any exception."""
    if isinstance(exc, OSError) and exc.strerror is not None:
        return str(exc.strerror)
    return str(exc) or type(exc).__name__


def text_of(exc: BaseException) -> str:
    """Where, if the exception knows, and why."""
    if not isinstance(exc, OSError) or exc.strerror is None or not isinstance(exc.filename, (str, bytes)):
        return reason(exc)
    return f"{os.fsdecode(exc.filename)}: {exc.strerror}"


def with_class(exc: BaseException) -> str:
    """The same for what nobody foresaw: with the class of the exception, unless the words are the system's own."""
    return text_of(exc) if isinstance(exc, OSError) else f"{type(exc).__name__}: {exc}"
