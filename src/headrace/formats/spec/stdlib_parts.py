"""Functions of the standard library for commands, imported from its C modules to save time.

The imports of a short command take 17 ms of CPU time. `socket` would add 45 % (it imports selectors and enum), `signal`
31 % (enum), `string` and `locale` 48 % (re), `collections` 15 %. The underlying C modules are part of CPython 3.8 to
3.13.
"""

from __future__ import annotations

import _socket as socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections import deque
    from locale import CODESET, nl_langinfo
    from typing import Iterable, Optional, Tuple

    def formatter_parser(text: str) -> Iterable[Tuple[str, Optional[str], Optional[str], Optional[str]]]:
        """The same as `string.Formatter.parse`."""
else:
    import _signal as signal
    from _collections import deque
    from _locale import CODESET, nl_langinfo
    from _string import formatter_parser

__all__ = ["CODESET", "deque", "formatter_parser", "nl_langinfo", "signal", "socket"]
