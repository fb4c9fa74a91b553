"""The instance's R (RFC 20) in the pod's file system, where scripts look for it: `config/etc/flux/system/R`.

The Flux Operator's pods each write R once, before their brokers start, as if all pods were like themselves. Here each
pod has what the instance has, as `flux resource R` prints it, once its broker is in state run (a follower some seconds
later); and again whenever the instance's resources change, as when it grows.
"""

from __future__ import annotations

import contextlib
import os

from ...client.handle import Handle, Rpc
from ...spec.message import EVENT
from .place import Place

# The event that tells of a change of R.
_CHANGED = "resource-define"


class ResourcesFile:
    """Keeps the file current through a connection to the pod's own broker."""

    def __init__(self, place: Place) -> None:
        self._path = f"{place.config}/etc/flux/system/R"
        self._handle = Handle(f"local://{place.socket}")
        self._asking = self._asks_again = False
        # An instance without resources, or without room for the file, is as good.
        self._handle.rpc("event.subscribe", {"topic": _CHANGED}).then(lambda _answer: None)
        self._ask()

    @property
    def fd(self) -> int:
        return self._handle.fileno()

    def read(self) -> bool:
        """Take what has come; False when nothing more will."""
        try:
            self._handle.pump(0)
            while self._handle.dispatch():
                pass
            for events in self._handle.unclaimed(EVENT):
                if events:
                    events.clear()
                    self._ask()
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._handle.close()

    def _ask(self) -> None:
        if self._asking:
            self._asks_again = True
            return
        self._asking, self._asks_again = True, False
        self._handle.rpc("resource.sched-status", {}, nodeid=0).then(self._answered)

    def _answered(self, answer: Rpc) -> None:
        self._asking = False
        with contextlib.suppress(OSError):
            self._write(answer)
        if self._asks_again:
            self._ask()

    def _write(self, answer: Rpc) -> None:
        import json

        text = json.dumps(answer.get()["all"]) + "\n"
        with open(f"{self._path}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{self._path}.new", self._path)
