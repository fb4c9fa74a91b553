from __future__ import annotations

from postgresql import address, server

__all__ = ["address", "server"]
