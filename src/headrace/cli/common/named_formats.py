"""The option `-o` of listing commands: a format string, or the name of one.

Users and sites can add named formats to those of a command, in `flux/flux-jobs.toml` (or `.yaml`, `.json`) in the
folders of XDG_CONFIG_HOME and XDG_CONFIG_DIRS: a table `[formats.NAME]` with `format` and `description`, or
`[list.formats.NAME]` for a command with subcommands. `-o help` lists all formats, `-o get-config=NAME` prints one in
the syntax of such a file. The files are read only if the name is not a format of the command itself.
"""

from __future__ import annotations

import os
import sys

from headrace.cli.common.errors import CommandError
from headrace.wire.client.installation import config_folders
from headrace.wire.query.format import Format, FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container, Dict, List, Mapping, Optional, Sequence

    from headrace.wire.query.format import Getter


_GET_CONFIG = "get-config="


class Formats:
    """The named formats of a command.

    `program` is the command's name, `group` the subcommand, `groups` are all subcommands.
    """

    def __init__(
        self,
        program: str,
        formats: Mapping[str, str],
        purposes: Mapping[str, str],
        group: str = "",
        groups: Sequence[str] = (),
    ) -> None:
        self.program = program
        self.formats = dict(formats)
        self.purposes = dict(purposes)
        self.group = group
        self.groups = groups

    def resolve(self, text: str, fields: Container[str] = ()) -> Optional[str]:
        """The format string of `-o text`; None if `text` asks for output, which is then printed.

        Raises FormatError for an unknown name (with a hint if it looks like `fields` without braces), and CommandError
        for an error in a file.
        """
        if text in self.formats:
            return self.formats[text]
        if "{" in text:
            return text
        self._add_configured()
        if text == "help":
            sys.stdout.write(_help_text(self.program, self.formats, self.purposes))
            return None
        name = text[len(_GET_CONFIG) :] if text.startswith(_GET_CONFIG) else text
        if name not in self.formats:
            raise FormatError(f"Unknown format name {name}{_hint(name, fields)}")
        if name == text:
            return self.formats[name]
        import json

        table = f"{self.group}.formats" if self.group else "formats"
        print(f"[{table}.{name}]")
        print(f"description = {json.dumps(self.purposes.get(name, ''), ensure_ascii=False)}")
        print(f"format = {json.dumps(self.formats[name], ensure_ascii=False)}")
        return None

    def _add_configured(self) -> None:
        own = set(self.formats)
        for path in _files(self.program):
            for name, entry in self._tables(path).items():
                where = f"{path}: formats.{name}"
                _need_mapping(entry, where)
                if "format" not in entry:
                    raise CommandError(f"{where}: required key 'format' is missing")
                if not isinstance(entry["format"], str):
                    raise CommandError(f"{where}.format must be a string")
                if name in own:
                    raise CommandError(f"{where}: override of builtin format {name} is not allowed")
                self.formats[name] = entry["format"]
                self.purposes[name] = str(entry.get("description", ""))

    def _tables(self, path: str) -> Dict[str, Any]:
        """The formats in a file. Raises CommandError."""
        content = _read(path)
        _need_mapping(content, path)
        if self.group:
            for key in content:
                if key not in self.groups:
                    raise CommandError(f"{path}: invalid key {key}: known are {', '.join(self.groups)}")
            content = content.get(self.group, {})
            _need_mapping(content, f"{path}: {self.group}")
        formats: Dict[str, Any] = content.get("formats", {})
        _need_mapping(formats, f"{path}: formats")
        return formats


def _hint(text: str, fields: Container[str]) -> str:
    """A hint for an unknown format name: if it consists of field names, show it with braces."""
    words = text.replace(",", " ").split()
    known = [word for word in words if word.partition("!")[0].partition(":")[0] in fields]
    if known == words and words:
        return f" (fields stand in braces: did you mean '{' '.join(f'{{{word}}}' for word in words)}'?)"
    return " (-o help lists the names; in a format of your own, fields stand in braces)"


def _need_mapping(value: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise CommandError(f"{where} must be a mapping")


def _files(program: str) -> List[str]:
    """The configuration files of a command, the user's last: a later file overrides an earlier one."""
    paths = [
        os.path.join(folder, "flux", f"{program}.{kind}")
        for folder in reversed(config_folders())
        for kind in ("toml", "yaml", "json")
    ]
    return [path for path in paths if os.path.isfile(path)]


def _read(path: str) -> Any:
    toml = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    module = {".toml": toml, ".yaml": "yaml", ".json": "json"}[path[-5:]]
    try:
        parser = __import__(module)
    except ImportError:
        raise CommandError(f"{path}: this Python has no {module}; write the formats as JSON") from None
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        return parser.safe_load(text) if module == "yaml" else parser.loads(text)
    except Exception as exc:
        # Each parser has its own exception class.
        raise CommandError(f"{path}: {exc}") from None


def _help_text(program: str, formats: Mapping[str, str], purposes: Mapping[str, str]) -> str:
    """The text of `-o help`."""
    width = max(11, *(len(name) for name in formats))
    lines = "".join(f"  {name:<{width}}  {purposes.get(name, '')}".rstrip() + "\n" for name in formats)
    return f"\nConfigured {program} output formats:\n\n{lines}"


def refused(exc: FormatError) -> CommandError:
    """The error for a wrong `-o`.

    Only at a terminal it lists all fields: scripts compare stderr with Flux's.
    """
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    return CommandError(f"{exc}{exc.known if on_terminal else ''}")


# Characters that a terminal acts on: control characters, line and paragraph separators, changes of text direction.
_OBEYED = r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"


def layout_of(text: str, formats: Formats, headings: Mapping[str, str]) -> Optional[Format]:
    """The format of `-o text`; None if `text` asks for help, which is then printed. Raises CommandError."""
    try:
        chosen = formats.resolve(text, headings)
        return None if chosen is None else Format(chosen, headings)
    except FormatError as exc:
        raise refused(exc) from None


def printable(text: str) -> str:
    """A text from a user, with escapes such as `\\n` for characters that would garble a table."""
    if text.isprintable():
        return text
    import re

    return re.sub(_OBEYED, lambda match: repr(match[0])[1:-1], text)


def show(layout: Format, rows: List[Getter], no_header: bool) -> None:
    """Print the rows, with a header unless `no_header` is set."""
    layout.fit(rows, header=not no_header)
    lines = [] if no_header else [layout.header()]
    lines += [layout.row(row) for row in rows]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
