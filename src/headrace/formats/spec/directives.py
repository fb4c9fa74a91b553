"""Submission directives (RFC 36): options in lines of a batch script such as ``# flux: -N4``.

Only the text is parsed here; the command that reads the script interprets the options.
"""

from __future__ import annotations

import re
import textwrap
from typing import List, NamedTuple, Tuple

_SENTINEL = re.compile(r"^([^\w\n]*)(flux|FLUX):")
_TRIPLE = ('"""', "'''")


class DirectiveError(ValueError):
    """A directive cannot be read; the message contains its line number."""


class Directive(NamedTuple):
    """One directive: the number of its first line, counted from 1, and its words after unquoting."""

    line: int
    args: List[str]


def parse(text: str) -> List[Directive]:
    """Return the directives of a script; raises DirectiveError.

    All directives have the same sentinel. They end at the first line that is neither blank nor a comment. A directive
    after that line is an error, since it would be ignored silently.
    """
    found: List[Directive] = []
    lines = text.splitlines()
    prefix = sentinel = None
    stopped = 0
    at = 0
    while at < len(lines):
        line, number = lines[at], at + 1
        at += 1
        match = _SENTINEL.match(line)
        if match is None:
            if prefix is not None and not stopped and line.strip() and not _continues(line, prefix):
                stopped = number
            continue
        if stopped:
            raise DirectiveError(
                f"line {number}: orphan 'flux:' detected: directives ended at line {stopped}; "
                "move it up to the other directives"
            )
        if sentinel is None:
            prefix, sentinel = match.group(1), match.group()
        elif match.group() != sentinel:
            raise DirectiveError(
                f"line {number}: sentinel changed from '{sentinel}' to '{match.group()}'; use one only"
            )
        body = line[match.end() :]
        args, at = _Words(body, number, lines, at, sentinel).split()
        if args:
            found.append(Directive(number, args))
    return found


def options(text: str) -> List[str]:
    """Return the options of all directives in one list.

    Raises DirectiveError for a directive that is not an option.
    """
    result: List[str] = []
    for directive in parse(text):
        if not directive.args[0].startswith("-"):
            raise DirectiveError(
                f"line {directive.line}: unknown directive '{directive.args[0]}'; an option starts with '-'"
            )
        result.extend(directive.args)
    return result


def _continues(line: str, prefix: str) -> bool:
    return line.startswith(prefix) or (bool(prefix.strip()) and line.rstrip() == prefix.rstrip())


class _Words:
    """Splits a directive into words by the rules of the POSIX shell, plus multi-line triple quotes."""

    def __init__(self, body: str, number: int, lines: List[str], at: int, sentinel: str) -> None:
        self.body = body
        self.number = number
        self.lines = lines
        self.at = at
        self.sentinel = sentinel

    def split(self) -> Tuple[List[str], int]:
        """Return the words and the index of the line after the directive."""
        words: List[str] = []
        word: List[str] = []
        in_word = False
        i, body = 0, self.body
        while i < len(body):
            char = body[i]
            if char.isspace():
                if in_word:
                    words.append("".join(word))
                    word, in_word = [], False
                i += 1
                continue
            if char == "#" and not in_word:
                break
            in_word = True
            if body.startswith(_TRIPLE, i):
                content, i = self._triple(i)
            elif char == "'":
                end = body.find("'", i + 1)
                if end < 0:
                    raise self._unclosed("'")
                content, i = body[i + 1 : end], end + 1
            elif char == '"':
                content, i = self._double(i + 1)
            elif char == "\\":
                if i + 1 == len(body):
                    raise DirectiveError(f"line {self.number}: nothing follows the backslash at the end of the line")
                content, i = body[i + 1], i + 2
            else:
                content, i = char, i + 1
            word.append(content)
        if in_word:
            words.append("".join(word))
        return words, self.at

    def _double(self, i: int) -> Tuple[str, int]:
        out: List[str] = []
        body = self.body
        while i < len(body):
            char = body[i]
            if char == '"':
                return "".join(out), i + 1
            if char == "\\" and i + 1 < len(body) and body[i + 1] in '"\\$`':
                i += 1
                char = body[i]
            out.append(char)
            i += 1
        raise self._unclosed('"')

    def _triple(self, i: int) -> Tuple[str, int]:
        quotes = self.body[i : i + 3]
        end = self.body.find(quotes, i + 3)
        if end >= 0:
            return self.body[i + 3 : end], end + 3
        if self.body[i + 3 :].strip():
            raise DirectiveError(f"line {self.number}: text after an opening {quotes} that is not closed on its line")
        content: List[str] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if not line.startswith(self.sentinel):
                raise DirectiveError(f"line {self.at + 1}: must start with '{self.sentinel}' inside {quotes}")
            self.at += 1
            text = line[len(self.sentinel) :]
            if text.rstrip().endswith(quotes):
                last = text.rstrip()[:-3]
                if last.strip():
                    content.append(last)
                elif content:
                    content.append("")
                return textwrap.dedent("\n".join(content)), len(self.body)
            if quotes in text:
                raise DirectiveError(f"line {self.at}: the closing {quotes} must be at the end of its line")
            content.append(text)
        raise self._unclosed(quotes)

    def _unclosed(self, quotes: str) -> DirectiveError:
        return DirectiveError(f"line {self.number}: No closing quotation: {quotes} is not closed")
