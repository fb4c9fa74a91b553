"""The base of Python programs in Flux's style: their `main` (`CLIMain`), and the layout of their help.

Both are exported by `flux.util`, as in flux-core.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from functools import partial
from typing import Any, Callable, NoReturn, Optional, Type


class CLIMain:
    """A decorator that runs a program's main function at once, and ends the process with its status.

    Log lines of the program are `NAME: LEVEL: MESSAGE` on stderr. An exception is logged with level ERROR on `logger`,
    and makes the status 1; its traceback follows with FLUX_PYCLI_LOGLEVEL=10 (a level of package logging, default 20).
    """

    def __init__(self, logger: Optional[logging.Logger] = None) -> None:
        self._logger = logging.getLogger() if logger is None else logger

    def __call__(self, main: Callable[[], Any]) -> NoReturn:
        logging.basicConfig(level=_level(), format="%(name)s: %(levelname)s: %(message)s")
        status: Any = 0
        try:
            main()
        except SystemExit as exc:
            status = exc.code
        except Exception as exc:
            status = 1
            self._logger.error(_text(exc), exc_info=self._logger.isEnabledFor(logging.DEBUG))
        logging.shutdown()
        sys.exit(status)


def _level() -> int:
    text = os.environ.get("FLUX_PYCLI_LOGLEVEL", "")
    if text.isdigit():
        return int(text)
    named = logging.getLevelName(text.upper())
    return named if isinstance(named, int) else logging.INFO


def _text(exc: Exception) -> str:
    """The operating system's message of an exception, with its file; otherwise the exception's own text."""
    words = getattr(exc, "strerror", None)
    if not words:
        return str(exc) or type(exc).__name__
    name = getattr(exc, "filename", None)
    return f"{words}: {name!r}" if name else str(words)


class _Formatter(argparse.HelpFormatter):
    """Shows the metavar of an option with several names once: `-s, --size=N`."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, action.dest.upper())
        last = action.option_strings[-1]
        # The brackets of an optional value include the equals sign.
        shown = f"[={value[1:]}" if value[:1] == "[" else f"={value}" if last[:2] == "--" else f" {value}"
        return ", ".join(action.option_strings) + shown


class _RawFormatter(_Formatter, argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of a description."""


def help_formatter(argwidth: int = 40, raw_description: bool = False) -> Callable[[str], _Formatter]:
    """A `formatter_class` for argparse, with `argwidth` columns for the options."""
    kind: Type[_Formatter] = _RawFormatter if raw_description else _Formatter
    return partial(kind, max_help_position=argwidth)
