"""Points in time as users write them, for `--begin-time` (the future) and `--since` (the past).

Examples: `+1h`, `-15m`, `now`, `3pm`, `tomorrow 9am`, `last monday`, `2026-11-21 8am`, `2026-11-21 08:00`, `12/01/24`,
`Dec 1`, `an hour ago`. Times are local. An incomplete time, such as a time of day or a weekday, stands for its next
occurrence if the time is in the future, and for its last occurrence if the time is in the past.
"""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

from headrace.formats.spec import duration
from headrace.wire.query import QueryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Tuple

_CLOCK = re.compile(r"(?:at\s+)?(\d{1,2})(?::(\d\d)(?::(\d\d))?)?\s*(am|pm)?$")
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}T")
_WORDS = {"noon": (12, 0, 0), "midnight": (0, 0, 0)}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_UNITS = {"second": 1, "sec": 1, "minute": 60, "min": 60, "hour": 3600, "day": 86400, "week": 604800}
_UNITS.update(month=30 * 86400, year=365 * 86400)
_UNITS.update(s=1, m=60, hr=3600, h=3600, d=86400, w=604800, y=365 * 86400)
# Times of day that stand for parts of a day.
_PARTS = {"morning": (6, 0, 0), "afternoon": (13, 0, 0), "evening": (18, 0, 0), "night": (21, 0, 0)}
_MONTHS = ("%b %d", "%B %d", "%d %b", "%d %B")
# The month precedes the day if both are numbers, as in Flux.
_DATES = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d"),
    *(form.replace("-", sign) for sign in "/-." for form in ("%m-%d-%Y", "%m-%d-%y")),
    *(f"{form} %Y" for form in _MONTHS),
)
_WITHOUT_YEAR = ("%m/%d", *_MONTHS)


class WhenError(QueryError):
    """A text that is not a point in time."""


def parse_future(text: str, now: Optional[float] = None) -> float:
    """Seconds since the epoch of a future time. Raises WhenError."""
    return parse(text, time.time() if now is None else now, future=True)


def parse_past(text: str, now: Optional[float] = None) -> float:
    """Seconds since the epoch of a past time. Raises WhenError, also for a time in the future."""
    now = time.time() if now is None else now
    when = parse(text, now, future=False)
    if when > now:
        raise WhenError(f'Invalid datetime: "{text}" is in the future')
    return when


def parse(text: str, now: float, future: bool) -> float:
    """Seconds since the epoch; `future` selects the next or the last 8 am or Monday. Raises WhenError."""
    given, text = text, " ".join(text.replace(",", " ").split())
    plain = text.lower()
    if plain[:1] in ("+", "-"):
        try:
            seconds = duration.parse(plain[1:])
        except ValueError:
            raise WhenError(f'Invalid datetime: "{given}"') from None
        return float(now + (seconds if plain[0] == "+" else -seconds))
    span = _span(re.sub(r"^in | from now$", "", plain))
    if span is not None:
        return now + span
    if plain.endswith(" ago"):
        span = _span(plain[: -len(" ago")])
        if span is not None:
            return now - span
    if plain == "now":
        return now
    if re.fullmatch(r"\d+(\.\d+)?", plain):
        return float(plain)
    here = datetime.fromtimestamp(now)
    found = _date_and_clock(text, here, future) or _day_and_clock(plain, here, future)
    if found is None:
        raise WhenError(f'Invalid datetime: "{given}"')
    return found.timestamp()


def _span(text: str) -> Optional[float]:
    """Seconds of `2 hours`, `2h`, `a day` or `1 week`; None for anything else."""
    match = re.fullmatch(r"(an?\s|\d+(?:\.\d+)?\s*)([a-z]+?)s?", text)
    if match is None or match.group(2) not in _UNITS:
        return None
    count = match.group(1)
    return (1.0 if count[0] == "a" else float(count)) * _UNITS[match.group(2)]


def _date_and_clock(text: str, here: datetime, future: bool) -> Optional[datetime]:
    """`[DAY] DATE [CLOCK]`, `CLOCK DATE` or `DATETCLOCK`: `2026-11-21 8am`, `8am Dec 1`, `Dec 1 17:30`."""
    words = (text.replace("T", " ", 1) if _ISO.match(text) else text).split()
    if len(words) > 1 and _is_weekday(words[0].lower()):
        # The weekday of a date repeats what the date says.
        del words[0]
    for count in range(len(words), 0, -1):
        for date, clock in ((words[:count], words[count:]), (words[-count:], words[:-count])):
            found = _date(" ".join(date), here, future)
            if found is None:
                continue
            time_of_day = _clock(" ".join(clock).lower()) if clock else (0, 0, 0)
            if time_of_day is not None:
                return found.replace(hour=time_of_day[0], minute=time_of_day[1], second=time_of_day[2])
    return None


def _date(text: str, here: datetime, future: bool) -> Optional[datetime]:
    for form in _DATES:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    today = here.replace(hour=0, minute=0, second=0, microsecond=0)
    # A date without a year is its next or its last occurrence.
    years = (here.year, here.year + 1) if future else (here.year, here.year - 1)
    for form in _WITHOUT_YEAR:
        for year in years:
            try:
                found = datetime.strptime(f"{text} {year}", f"{form} %Y")
            except ValueError:
                continue
            if found == today or (found > today) == future:
                return found
    return None


def _day_and_clock(plain: str, here: datetime, future: bool) -> Optional[datetime]:
    """`[today|tomorrow|yesterday|DAY] [CLOCK]`; both parts are optional, and their order does not matter."""
    which, _, rest = plain.partition(" ")
    if which in ("last", "next") and _is_day(rest.partition(" ")[0]):
        plain, future = rest, which == "next"
    clock_text, _, last = plain.rpartition(" ")
    if clock_text and _is_day(last):
        plain = f"{last} {clock_text[:-3] if clock_text.endswith(' on') else clock_text}"
    first, _, rest = plain.partition(" ")
    day: Optional[datetime] = None
    midnight = here.replace(hour=0, minute=0, second=0, microsecond=0)
    if first in ("today", "tomorrow", "yesterday"):
        day = midnight + timedelta(days={"today": 0, "tomorrow": 1, "yesterday": -1}[first])
    elif _is_weekday(first):
        index = next(i for i, name in enumerate(_DAYS) if name.startswith(first))
        ahead = (index - here.weekday()) % 7 or 7
        day = midnight + timedelta(days=ahead if future else ahead - 7)
    else:
        rest = plain
    rest = rest.strip()
    if day is not None and not rest:
        return day
    clock = _clock(rest)
    if clock is None:
        return None
    base = midnight if day is None else day
    when = base + timedelta(hours=clock[0], minutes=clock[1], seconds=clock[2])
    if day is None:
        if future and when <= here:
            when += timedelta(days=1)
        elif not future and when > here:
            when -= timedelta(days=1)
    return when


def _is_day(word: str) -> bool:
    return word in ("today", "tomorrow", "yesterday") or _is_weekday(word)


def _is_weekday(word: str) -> bool:
    return len(word) >= 3 and any(name.startswith(word) for name in _DAYS)


def _clock(text: str) -> Optional[Tuple[int, int, int]]:
    named = _WORDS.get(text) or _PARTS.get(text)
    if named is not None:
        return named
    match = _CLOCK.match(text)
    if match is None or (match.group(2) is None and match.group(4) is None):
        return None
    hour, minute, second = int(match.group(1)), int(match.group(2) or 0), int(match.group(3) or 0)
    half = match.group(4)
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "pm" else 0)
    return (hour, minute, second) if hour < 24 and minute < 60 and second < 60 else None
