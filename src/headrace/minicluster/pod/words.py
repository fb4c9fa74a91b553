"""Which command lines mean the same with a shell and without one. Pure."""

from __future__ import annotations

# What a shell acts on, outside of quotes and within double ones.
_SPECIAL = frozenset("|&;<>()$`\\*?[]#~{}!\n")
_SPECIAL_QUOTED = frozenset("$`\\!")


def plain_words(text: str) -> list[str] | None:
    """The words of a command that needs no shell: words and quoted text. None for any other."""
    words: list[str] = []
    # None between words: a word may be empty, in quotes.
    word: str | None = None
    quote = ""
    for character in text.strip():
        if quote == "'" and character != "'":
            word = (word or "") + character
        elif quote and character == quote:
            quote = ""
        elif character in (_SPECIAL_QUOTED if quote else _SPECIAL):
            return None
        elif not quote and character in "'\"":
            quote, word = character, word or ""
        elif not quote and character in " \t":
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + character
    if quote:
        return None
    words += [] if word is None else [word]
    # Of a first word like this a shell makes a variable.
    return words if words and "=" not in words[0] else None
