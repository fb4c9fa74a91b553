"""Job ids: 64-bit FLUIDs, their text forms and their generator (RFC 19).

An id holds, from the top, 40 bits of milliseconds since the instance's epoch, 14 bits naming the generator and a
10-bit sequence number, so ids of one generator ascend in order of submission without anybody being asked. The generator
takes the time as an argument: it is a plain value that a journal can restore and a test can drive.

Every job is shown as F58, so that form has a table of its own; the words and emoji are read from their files when first
asked for.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Tuple

    # The digits of a base by value, and their values.
    Digits = Tuple[List[str], Dict[str, int]]

MAX_ID = (1 << 64) - 1
TIMESTAMP_BITS, GENERATOR_BITS, SEQUENCE_BITS = 40, 14, 10
MAX_GENERATOR = (1 << GENERATOR_BITS) - 1
_SEQUENCES = 1 << SEQUENCE_BITS
_TIMESTAMP_SHIFT = GENERATOR_BITS + SEQUENCE_BITS

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_VALUES = {digit: value for value, digit in enumerate(_BASE58)}
# Of two digits, by value: made for the first id that is shown, as most brokers of an instance show none.
_base58_pairs: List[str] = []
# Terminals and files that cannot show U+0192 get the ASCII letter, which every reader takes as well.
_f58_prefix = "f" if os.environ.get("FLUX_F58_FORCE_ASCII") else "ƒ"
# U+0192 as it arrives where the locale is not UTF-8: in ASCII as bytes that are no text, in Latin-1 as others.
_F58_MISREAD = ("\udcc6\udc92", "\xc6\x92")
_F58_MAX_DIGITS = 11

# Read when first asked for, by form.
_tables: Dict[str, Digits] = {}

# Compiled when first needed: most commands are given no id.
_DECIMAL = r"[0-9]{1,20}\Z"
_HEX = r"0x[0-9a-fA-F]{1,16}\Z"
_DOTHEX = r"(?:[0-9a-fA-F]{1,4}\.){3}[0-9a-fA-F]{1,4}\Z"
_WORD_BASE = 1626
_EMOJI_BASE = 576
_EMOJI_FIRST, _EMOJI_LAST = "\U0001f000", "\U0001ffff"


class JobIdError(ValueError):
    """Text is no job id, an id is no 64-bit number or a generator's number is out of range."""


def parse(text: str) -> int:
    """Return the id that `text` names in any form of RFC 19: decimal, hex, dothex, kvs, words, F58 or emoji.

    Whitespace around it and the ``job.`` of a KVS path are ignored. Raises JobIdError.
    """
    id_ = text.strip()
    try:
        if "." in id_:
            value = _parse_dothex(id_)
        elif "-" in id_:
            value = _parse_words(id_)
        elif id_[:1] in ("ƒ", "f"):
            value = _parse_f58(id_[1:])
        elif id_[:2] in _F58_MISREAD:
            value = _parse_f58(id_[2:])
        elif _EMOJI_FIRST <= id_[:1] <= _EMOJI_LAST:
            value = _parse_emoji(id_)
        elif id_[:2] == "0x":
            value = int(_need(_HEX, id_), 16)
        else:
            value = int(_need(_DECIMAL, id_))
    except (KeyError, ValueError):
        raise JobIdError(
            f"'{text}' is no job id: expected F58 such as ƒ2C4qYSj, a number or another RFC 19 form"
        ) from None
    if value > MAX_ID:
        raise JobIdError(f"'{text}' is no job id: larger than 64 bits")
    return value


def encode(id: int, form: str = "f58") -> str:
    """Return an id as text. Forms: ``f58 f58plain dec hex dothex kvs words emoji``.

    ``f58`` starts with ƒ, or with f if FLUX_F58_FORCE_ASCII is set or follow_locale() saw the need; ``f58plain`` always
    with f.
    Raises JobIdError for another form or an id that is not a 64-bit number.
    """
    if not 0 <= id <= MAX_ID:
        raise JobIdError(f"{id} is no job id: not in the range 0 to {MAX_ID}")
    if form == "f58":
        return _f58_prefix + _encode_base58(id)
    encoder = _ENCODERS.get(form)
    if encoder is None:
        raise JobIdError(f"unknown form '{form}' of a job id: expected f58, {', '.join(_ENCODERS)}")
    return encoder(id)


def shown(text: str) -> str:
    """A text for people in which others have written ids, with the first letter that `encode` gives ids here."""
    return text if _f58_prefix == "ƒ" else text.replace("ƒ", _f58_prefix)


def follow_locale() -> None:
    """Begin ids with f from now on if the characters of this process's locale are not UTF-8.

    For what talks to people. Brokers do not: members of an instance may have other locales, and ids are part of names.
    """
    global _f58_prefix
    from headrace.spec.stdlib_parts import CODESET, nl_langinfo

    if nl_langinfo(CODESET).upper() not in ("UTF-8", "UTF8"):
        _f58_prefix = "f"


def _need(pattern: str, text: str) -> str:
    import re

    if not re.match(pattern, text):
        raise ValueError(text)
    return text


def _encode_base58(id_: int) -> str:
    if id_ < 58:
        return _BASE58[id_]
    text = ""
    if not _base58_pairs:
        _base58_pairs.extend(high + low for high in _BASE58 for low in _BASE58)
    while id_ >= 58:
        id_, pair = divmod(id_, 58 * 58)
        text = _base58_pairs[pair] + text
    # The pair on top has a zero of its own if its value has one digit, and what is left has at most one.
    if id_:
        return _BASE58[id_] + text
    return text[1:] if text[0] == "1" else text


def _parse_f58(digits: str) -> int:
    if not 1 <= len(digits) <= _F58_MAX_DIGITS:
        raise ValueError(digits)
    value = 0
    for digit in digits:
        value = value * 58 + _BASE58_VALUES[digit]
    return value


def _encode_dothex(id_: int) -> str:
    digits = f"{id_:016x}"
    return f"{digits[:4]}.{digits[4:8]}.{digits[8:12]}.{digits[12:]}"


def _parse_dothex(text: str) -> int:
    groups = _need(_DOTHEX, text[4:] if text.startswith("job.") else text).split(".")
    return int("".join(group.zfill(4) for group in groups), 16)


def _table(name: str) -> List[str]:
    import pkgutil  # late: every command reads this file, few ask for words or emoji

    data = pkgutil.get_data("headrace.spec", name) or b""
    return [item for line in data.decode().splitlines() if line[:1] != "#" for item in line.split()]


def _words() -> Digits:
    if "words" not in _tables:
        words = _table("jobid_words.txt")
        _tables["words"] = words, {word: value for value, word in enumerate(words)}
    return _tables["words"]


def _emoji() -> Digits:
    if "emoji" not in _tables:
        emoji = list("".join(_table("jobid_emoji.txt")))
        _tables["emoji"] = emoji, {digit: value for value, digit in enumerate(emoji)}
    return _tables["emoji"]


def _encode_words(id_: int) -> str:
    """Mnemonicode of the id's eight bytes, low half first: three words for each 32 bits, least significant first."""
    words, _ = _words()
    return "--".join(
        "-".join(words[half // _WORD_BASE**power % _WORD_BASE] for power in range(3))
        for half in (id_ & 0xFFFFFFFF, id_ >> 32)
    )


def _parse_words(text: str) -> int:
    _, values = _words()
    digits = [values[word] for word in text.lower().split("-") if word]
    if len(digits) != 6:
        raise ValueError(text)
    low, high = (a + (b + c * _WORD_BASE) * _WORD_BASE for a, b, c in (digits[:3], digits[3:]))
    if low >> 32 or high >> 32:
        raise ValueError(text)
    return high << 32 | low


def _encode_emoji(id_: int) -> str:
    emoji, _ = _emoji()
    id_, digit = divmod(id_, _EMOJI_BASE)
    text = emoji[digit]
    while id_:
        id_, digit = divmod(id_, _EMOJI_BASE)
        text = emoji[digit] + text
    return text


def _parse_emoji(text: str) -> int:
    _, values = _emoji()
    if len(text) > 7:
        raise ValueError(text)
    value = 0
    for digit in text:
        value = value * _EMOJI_BASE + values[digit]
    return value


_ENCODERS: Dict[str, Callable[[int], str]] = {
    "f58plain": lambda id_: "f" + _encode_base58(id_),
    "dec": str,
    "hex": hex,
    "dothex": _encode_dothex,
    "kvs": lambda id_: "job." + _encode_dothex(id_),
    "words": _encode_words,
    "emoji": _encode_emoji,
}


class FluidGenerator:
    """Issues ascending ids for one generator.

    `epoch_ms` is the time that timestamp 0 stands for, in milliseconds since 1970-01-01 UTC. `high_water` is the
    largest id issued so far, to be journaled and given back after a restart: every id issued is larger; -1 is none.

    A clock that steps back is ignored until it has caught up, and when the 1024 numbers of a millisecond are used up
    the next millisecond's are taken without waiting, so under a burst ids run ahead of the clock.

    Raises JobIdError if the generator's number does not fit 14 bits or `high_water` is no id.
    """

    __slots__ = ("_generator_bits", "epoch_ms", "high_water")

    def __init__(self, generator: int = 0, epoch_ms: int = 0, high_water: int = -1) -> None:
        if not 0 <= generator <= MAX_GENERATOR:
            raise JobIdError(f"generator {generator} is not in the range 0 to {MAX_GENERATOR}")
        if not -1 <= high_water <= MAX_ID:
            raise JobIdError(f"high water {high_water} is no job id")
        self.epoch_ms = epoch_ms
        self.high_water = high_water
        self._generator_bits = generator << SEQUENCE_BITS

    def next(self, now_ms: int) -> int:
        """Return an id for a job submitted at `now_ms`, milliseconds since 1970. Raises JobIdError after 35 years."""
        return self.take(1, now_ms)[0]

    def take(self, count: int, now_ms: int) -> List[int]:
        """Return `count` ids, ascending, for jobs submitted at `now_ms`. Raises JobIdError after 35 years."""
        timestamp, sequence = max(0, now_ms - self.epoch_ms), 0
        if timestamp <= self.high_water >> _TIMESTAMP_SHIFT:
            timestamp = self.high_water >> _TIMESTAMP_SHIFT
            # An id of another generator may be the high water: none or all numbers of that millisecond are above it.
            used = self.high_water + 1 - (timestamp << _TIMESTAMP_SHIFT | self._generator_bits)
            sequence = max(0, min(used, _SEQUENCES))
        ids: List[int] = []
        while len(ids) < count:
            if sequence == _SEQUENCES:
                timestamp, sequence = timestamp + 1, 0
            stop = min(_SEQUENCES, sequence + count - len(ids))
            base = timestamp << _TIMESTAMP_SHIFT | self._generator_bits
            ids.extend(range(base + sequence, base + stop))
            sequence = stop
        if timestamp >> TIMESTAMP_BITS:
            raise JobIdError(f"no job ids are left: {timestamp} ms since the epoch do not fit {TIMESTAMP_BITS} bits")
        if ids:
            self.high_water = ids[-1]
        return ids


def split(id: int) -> Tuple[int, int, int]:
    """Return an id's timestamp (ms since the instance's epoch), generator and sequence number."""
    return id >> _TIMESTAMP_SHIFT, id >> SEQUENCE_BITS & MAX_GENERATOR, id & (_SEQUENCES - 1)
