"""A parser for the most used commands that parses simple command lines without argparse.

argparse and its dependencies take longer to import than such a command takes to run. The parser records options in
argparse's terms as they are added, and parses a line itself if all options are spelled out exactly. Any other line
(help, errors, `-vv`) is parsed again from the start by an argparse parser with the same options.

The argument types that several commands share are here as well.
"""

from __future__ import annotations

from headrace.formats.spec import jobid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from headrace.cli.common.arguments import Parser

    # (dest, the keyword arguments of add_argument)
    Option = Tuple[str, Dict[str, Any]]

_FLAGS = ("store_true", "count")
_KNOWN = {"action", "choices", "const", "default", "dest", "help", "metavar", "nargs", "type"}


class Arguments:
    """Parsed arguments as attributes, like argparse's Namespace."""

    def __init__(self, values: Dict[str, Any]) -> None:
        self.__dict__.update(values)


class QuickParser:
    """Parses simple command lines without argparse.

    `full` makes the argparse parser that gets the same options and parses all other lines.
    """

    def __init__(self, full: Callable[[], Parser]) -> None:
        self._full = full
        self._added: List[Tuple[Tuple[str, ...], Dict[str, Any]]] = []

    def add_argument(self, *names: str, **settings: Any) -> None:
        self._added.append((names, settings))

    def parse_args(self, argv: List[str]) -> Any:
        """The arguments as attributes. Raises the errors of the full parser (SystemExit, CommandError)."""
        values = self._quick(argv)
        if values is not None:
            return Arguments(values)
        return self.full_parser().parse_args(argv)

    def full_parser(self) -> Parser:
        """The argparse parser with the same options."""
        full = self._full()
        for names, settings in self._added:
            full.add_argument(*names, **settings)
        return full

    def _quick(self, argv: List[str]) -> Optional[Dict[str, Any]]:
        """The values by dest; None if the line needs argparse."""
        options: Dict[str, Option] = {}
        values: Dict[str, Any] = {}
        rest = nargs = ""
        convert: Any = str
        for names, settings in self._added:
            action = settings.get("action", "store")
            if not _KNOWN.issuperset(settings) or action not in ("store", "append", *_FLAGS):
                return None
            if names[0][0] == "-":
                dest = settings.get("dest") or _dest(names)
                options.update(dict.fromkeys(names, (dest, settings)))
                values.setdefault(dest, settings.get("default", False if action == "store_true" else None))
            else:
                rest, nargs, convert = names[0], settings.get("nargs", ""), settings.get("type", str)
                values[rest] = []
        if nargs not in ("...", "*"):
            return None
        index = 0
        try:
            while index < len(argv):
                word = argv[index]
                if word[:1] != "-" or word == "--":
                    if values[rest]:
                        return None
                    end = len(argv) if nargs == "..." else _end_of_words(argv, index)
                    if end == index:
                        return None
                    values[rest] = [convert(text) for text in argv[index:end]]
                    index = end
                else:
                    index = _take(options, values, argv, index)
        except (LookupError, ValueError, _NotPlain):
            return None
        except Exception as exc:
            # An ArgumentTypeError of a type: the full parser reports it. The class is not imported, hence the name.
            if type(exc).__name__ != "ArgumentTypeError":
                raise
            return None
        return values


class _NotPlain(Exception):
    """Raised for a word that needs argparse."""


def _dest(names: Tuple[str, ...]) -> str:
    long = [name for name in names if name[:2] == "--"]
    return (long or names)[0].lstrip("-").replace("-", "_")


def _end_of_words(argv: List[str], index: int) -> int:
    while index < len(argv) and argv[index][:1] != "-":
        index += 1
    return index


def _take(options: Dict[str, Option], values: Dict[str, Any], argv: List[str], index: int) -> int:
    """Parse the option at `index`; returns the index of the next word.

    Raises LookupError, ValueError, _NotPlain.
    """
    word = argv[index]
    text: Optional[str]
    if word[:2] == "--":
        name, equals, text = word.partition("=")
        text = text if equals else None
    else:
        name, text = word[:2], word[2:] or None
        if text is not None and text[0] == "=":
            raise _NotPlain
    dest, settings = options[name]
    action = settings.get("action", "store")
    if action in _FLAGS:
        if text is not None:
            raise _NotPlain
        values[dest] = True if action == "store_true" else (values[dest] or 0) + 1
        return index + 1
    if "nargs" in settings or "choices" in settings:
        raise _NotPlain
    if text is None:
        index += 1
        text = argv[index]
        if text[:1] == "-":
            raise _NotPlain
    value = settings.get("type", str)(text)
    values[dest] = [*(values[dest] or []), value] if action == "append" else value
    return index + 1


def job_id(text: str) -> int:
    """Parse a job id in any of its forms. Raises ArgumentTypeError."""
    try:
        return int(jobid.parse(text))
    except ValueError:
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(f"invalid JobID value: '{text}'") from None


def queue_names(text: str) -> str:
    """Check an argument with queue names, separated by commas. Raises ArgumentTypeError."""
    if "" in text.split(","):
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(f"the name of a queue cannot be empty: '{text}'")
    return text


def positive_int(text: str) -> int:
    """Parse a count of at least one. Raises ArgumentTypeError."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(f"'{text}' must be a positive integer")
    return value
