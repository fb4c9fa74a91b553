"""Recognises command lines that mean the same with and without a shell. Pure."""

from __future__ import annotations

# Special characters of a shell outside of quotes, and within double quotes.
_SPECIAL = frozenset("|&;<>()$`\\*?[]#~{}!\n")
_SPECIAL_QUOTED = frozenset("$`\\!")


def plain_words(text: str) -> list[str] | None:
    """The words of a command that needs no shell: plain and quoted words. None for any other command."""
    words: list[str] = []
    # None between words, since a quoted word may be empty.
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
    # A shell treats a first word with "=" as an assignment.
    return words if words and "=" not in words[0] else None
