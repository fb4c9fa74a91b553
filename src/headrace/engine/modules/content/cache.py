"""A cache of blobs of the backing store, with least-recently-used eviction. Pure: time is an argument.

Every entry can be dropped at any time, because a blob is added only after it is in the backing store (RFC 10).
"""

from __future__ import annotations

from collections import OrderedDict


class BlobCache:
    """Up to `target` bytes of blobs by digest. Blobs used in the last `old` seconds may exceed this."""

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
        """Drop old blobs until the target is reached.

        Returns the seconds until the next blob can be dropped; None if the target is reached.
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
