"""Blobs of the backing store that are also in memory, the least recently used first; pure (time is an argument).

Every entry can be dropped at any time, since a blob enters only after the backing store has it (RFC 10).
"""

from __future__ import annotations

from collections import OrderedDict


class BlobCache:
    """At most `target` bytes of blobs by digest; blobs used in the last `old` seconds are kept beyond that."""

    def __init__(self, target: int, old: float) -> None:
        self.target = target
        self.old = old
        self.size = 0
        self._blobs: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blobs)

    def get(self, digest: bytes, now: float) -> bytes | None:
        found = self._blobs.get(digest)
        if found is None:
            return None
        self._blobs[digest] = (found[0], now)
        self._blobs.move_to_end(digest)
        return found[0]

    def put(self, digest: bytes, blob: bytes, now: float) -> None:
        if digest not in self._blobs:
            self.size += len(blob)
        self._blobs[digest] = (blob, now)
        self._blobs.move_to_end(digest)

    def purge(self, now: float) -> float | None:
        """Drop old blobs beyond the target; returns the seconds until the next can be dropped, None below the
        target.
        """
        while self.size > self.target:
            digest, (blob, used) = next(iter(self._blobs.items()))
            if now - used < self.old:
                return used + self.old - now
            del self._blobs[digest]
            self.size -= len(blob)
        return None

    def clear(self) -> None:
        self._blobs.clear()
        self.size = 0
