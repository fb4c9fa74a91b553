"""Which command lines mean the same with a shell and without one. Pure."""

from __future__ import annotations

import shlex

# What a shell acts on, outside of quotes and within double ones.
_SPECIAL = frozenset("|&;<>()$`\\*?[]#~{}!\n")
_SPECIAL_QUOTED = frozenset("$`\\!")


def plain_words(text: str) -> list[str] | None:
    """The words of a command that needs no shell: words and quoted text. None for any other."""
    quote = ""
    for character in text.strip():
        if quote == "'":
            quote = "" if character == "'" else quote
        elif character == quote:
            quote = ""
        elif character in (_SPECIAL_QUOTED if quote else _SPECIAL):
            return None
        elif not quote and character in "'\"":
            quote = character
    if quote:
        return None
    words = shlex.split(text)
    # Of a word like this a shell makes a variable.
    return words if words and "=" not in words[0] else None
