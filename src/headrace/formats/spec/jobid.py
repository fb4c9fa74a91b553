"""Job ids: 64-bit FLUIDs, their text forms and their generator (RFC 19).

An id consists, from the most significant bit, of 40 bits of milliseconds since the instance's epoch, 14 bits with the
number of the generator, and a 10-bit sequence number. So each generator issues ascending ids without communication. The
generator gets the time as an argument, so a journal can restore it and a test can control it.

F58 has its table in the code, since every id is shown in this form. The tables of words and emoji are read from their
files on first use.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Tuple

    # The digits of a base by value, and the values by digit.
    Digits = Tuple[List[str], Dict[str, int]]

MAX_ID = (1 << 64) - 1
TIMESTAMP_BITS, GENERATOR_BITS, SEQUENCE_BITS = 40, 14, 10
MAX_GENERATOR = (1 << GENERATOR_BITS) - 1
_SEQUENCES = 1 << SEQUENCE_BITS
TIMESTAMP_SHIFT = GENERATOR_BITS + SEQUENCE_BITS

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_VALUES = {digit: value for value, digit in enumerate(_BASE58)}
# The text of each pair of digits, by value; filled when the first id is shown, since most brokers never show one.
_base58_pairs: List[str] = []
# The prefix is an ASCII f for terminals and files that cannot show U+0192. Every reader accepts both.
_f58_prefix = "f" if os.environ.get("FLUX_F58_FORCE_ASCII") else "ƒ"
# U+0192 as decoded under a locale other than UTF-8: as ASCII with surrogate escapes, and as Latin-1.
_F58_MISREAD = ("\udcc6\udc92", "\xc6\x92")
_F58_MAX_DIGITS = 11

# Filled on first use, by form.
_tables: Dict[str, Digits] = {}

# Compiled on first use, since most commands get no id.
_DECIMAL = r"[0-9]{1,20}\Z"
_HEX = r"0x[0-9a-fA-F]{1,16}\Z"
_DOTHEX = r"(?:[0-9a-fA-F]{1,4}\.){3}[0-9a-fA-F]{1,4}\Z"
_WORD_BASE = 1626
_EMOJI_BASE = 576
_EMOJI_FIRST, _EMOJI_LAST = "\U0001f000", "\U0001ffff"


class JobIdError(ValueError):
    """Text that is not a job id, a number that does not fit 64 bits, or a generator's number out of range."""


def parse(text: str) -> int:
    """Return the id of a text in any form of RFC 19: decimal, hex, dothex, kvs, words, F58 or emoji.

    Whitespace around it and the prefix ``job.`` of a KVS path are ignored. Raises JobIdError.
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
            f"'{text}' is not a job id: expected F58 such as ƒ2C4qYSj, a number or another RFC 19 form"
        ) from None
    if value > MAX_ID:
        raise JobIdError(f"'{text}' is not a job id: larger than 64 bits")
    return value


def encode(id: int, form: str = "f58") -> str:
    """Return an id as text. Forms: ``f58 f58plain dec hex dothex kvs words emoji``.

    ``f58`` starts with ƒ, or with f if FLUX_F58_FORCE_ASCII is set or follow_locale() chose it. ``f58plain`` always
    starts with f. Raises JobIdError for another form or an id that is not a 64-bit number.
    """
    if not 0 <= id <= MAX_ID:
        raise JobIdError(f"{id} is not a job id: not in the range 0 to {MAX_ID}")
    if form == "f58":
        return _f58_prefix + _encode_base58(id)
    encoder = _ENCODERS.get(form)
    if encoder is None:
        raise JobIdError(f"unknown form '{form}' of a job id: expected f58, {', '.join(_ENCODERS)}")
    return encoder(id)


def shown(text: str) -> str:
    """Return a text for users that contains ids of other programs, with the ids' prefix as in `encode`."""
    return text if _f58_prefix == "ƒ" else text.replace("ƒ", _f58_prefix)


def follow_locale() -> None:
    """Use the prefix f from now on if the encoding of this process's locale is not UTF-8.

    Only programs that print for users call this. Brokers do not: the brokers of an instance may have different locales,
    but ids are part of names.
    """
    global _f58_prefix
    from headrace.formats.spec.stdlib_parts import CODESET, nl_langinfo

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
    # The top pair has a leading zero if its value is a single digit. At this point, a single digit may remain.
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

    data = pkgutil.get_data("headrace.formats.spec", name) or b""
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
    """Mnemonicode of the id's eight bytes, low half first: three words for each 32 bits.

    The least significant word is first.
    """
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

    `epoch_ms` is the time of timestamp 0, in milliseconds since 1970-01-01 UTC. `high_water` is the largest id issued
    so far (-1: none), which is journaled and restored after a restart: every new id is larger.

    While the clock is behind the time of the last id, the time of the last id is used. When the 1024 numbers of a
    millisecond are used up, the generator continues with the next millisecond without waiting, so ids run ahead of the
    clock during a burst.

    Raises JobIdError if the generator's number does not fit 14 bits or `high_water` is not an id.
    """

    __slots__ = ("_generator_bits", "epoch_ms", "high_water")

    def __init__(self, generator: int = 0, epoch_ms: int = 0, high_water: int = -1) -> None:
        if not 0 <= generator <= MAX_GENERATOR:
            raise JobIdError(f"generator {generator} is not in the range 0 to {MAX_GENERATOR}")
        if not -1 <= high_water <= MAX_ID:
            raise JobIdError(f"high water {high_water} is not a job id")
        self.epoch_ms = epoch_ms
        self.high_water = high_water
        self._generator_bits = generator << SEQUENCE_BITS

    def next(self, now_ms: int) -> int:
        """Return an id for a job submitted at `now_ms`, milliseconds since 1970.

        Raises JobIdError after 35 years.
        """
        return self.take(1, now_ms)[0]

    def take(self, count: int, now_ms: int) -> List[int]:
        """Return `count` ids, ascending, for jobs submitted at `now_ms`. Raises JobIdError after 35 years."""
        timestamp, sequence = max(0, now_ms - self.epoch_ms), 0
        if timestamp <= self.high_water >> TIMESTAMP_SHIFT:
            timestamp = self.high_water >> TIMESTAMP_SHIFT
            # If another generator issued the high water mark, all numbers of its millisecond are usable, or none is.
            used = self.high_water + 1 - (timestamp << TIMESTAMP_SHIFT | self._generator_bits)
            sequence = max(0, min(used, _SEQUENCES))
        ids: List[int] = []
        while len(ids) < count:
            if sequence == _SEQUENCES:
                timestamp, sequence = timestamp + 1, 0
            stop = min(_SEQUENCES, sequence + count - len(ids))
            base = timestamp << TIMESTAMP_SHIFT | self._generator_bits
            ids.extend(range(base + sequence, base + stop))
            sequence = stop
        if timestamp >> TIMESTAMP_BITS:
            raise JobIdError(f"no job ids are left: {timestamp} ms since the epoch do not fit {TIMESTAMP_BITS} bits")
        if ids:
            self.high_water = ids[-1]
        return ids


def split(id: int) -> Tuple[int, int, int]:
    """Return an id's timestamp (ms since the instance's epoch), generator and sequence number."""
    return id >> TIMESTAMP_SHIFT, id >> SEQUENCE_BITS & MAX_GENERATOR, id & (_SEQUENCES - 1)
