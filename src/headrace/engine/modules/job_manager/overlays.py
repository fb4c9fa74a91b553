"""Keys of jobs whose value in the KVS takes precedence over the job store's, as reported by `kvs.job-data`.

Almost no job has any: a user must commit to a key in a job's directory, to repair or to damage it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.engine.broker.module.context import ModuleContext
from headrace.formats.spec import jobid
from headrace.formats.spec.message import Message

_TOPIC = "kvs.job-data"
_NONE: frozenset[str] = frozenset()


class Overlays:
    """`overlaid(id, key)` is called when a key of a job has got a value in the KVS."""

    def __init__(self, ctx: ModuleContext, overlaid: Callable[[int, str], None]) -> None:
        self._keys: dict[int, set[str]] = {}
        self._overlaid = overlaid
        ctx.subscribe(_TOPIC, lambda event: self._take(event.obj))
        ctx.subscribe("job-purge-inactive", self._purged)
        # Without the KVS there is nothing over the job store's data.
        ctx.call(_TOPIC, {}, lambda reply: None if reply.errnum else self._take(reply.obj))

    def of(self, id: int) -> set[str] | frozenset[str]:
        """The keys of a job with values in the KVS."""
        return self._keys.get(id, _NONE)

    def _take(self, body: dict[str, Any]) -> None:
        for path, present in body["keys"].items():
            folder, _, key = path.rpartition(".")
            try:
                id = jobid.parse(folder)
            except ValueError:
                # A key that resembles a job's, but is not below a job's directory.
                continue
            if present:
                self._keys.setdefault(id, set()).add(key)
                self._overlaid(id, key)
            elif id in self._keys:
                self._keys[id].discard(key)
                if not self._keys[id]:
                    del self._keys[id]

    def _purged(self, event: Message) -> None:
        for id in (event.obj or {}).get("jobs", ()):
            self._keys.pop(id, None)
