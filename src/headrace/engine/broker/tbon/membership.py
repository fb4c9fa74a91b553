"""Changes of a subtree's members, collected during a turn and reported once to the parent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.formats.spec.idset import Idset


class Report(NamedTuple):
    """The status of a subtree, and its ranks that came online or went offline.

    `lost` are the ranks in `offline` that did not leave in order.
    """

    status: str
    online: Idset
    offline: Idset
    lost: Idset

    def encode(self) -> dict[str, str]:
        return {name: str(value) for name, value in self._asdict().items()}


def decode(body: dict[str, Any]) -> Report:
    """Read a child's report. Raises ValueError for an invalid one."""
    status, *members = (body.get(key, "") for key in Report._fields)
    if not (isinstance(status, str) and all(isinstance(text, str) for text in members)):
        raise ValueError("status, online, offline and lost must be strings")
    return Report(status, *(Idset.parse(text) for text in members))


class Membership:
    """The changes in one subtree since its last report."""

    def __init__(self) -> None:
        self._online = Idset()
        self._offline = Idset()
        self._lost = Idset()
        self._status = ""

    def change(self, online: Iterable[int] = (), offline: Iterable[int] = (), lost: Iterable[int] = ()) -> None:
        """Record ranks that came or went. `lost` are the ranks in `offline` that did not leave in order."""
        came, went = Idset(online), Idset(offline)
        self._online = (self._online | came) - went
        self._offline = (self._offline | went) - came
        self._lost = (self._lost | Idset(lost)) - came

    def take(self, status: str) -> tuple[Report | None, bool]:
        """The report to send, or None if nothing has changed, and whether the `status` has changed."""
        is_new = status != self._status
        if not self._online and not self._offline and not is_new:
            return None, False
        report = Report(status, self._online, self._offline, self._lost)
        self._online = self._offline = self._lost = Idset()
        self._status = status
        return report, is_new
