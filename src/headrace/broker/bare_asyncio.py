"""asyncio without TLS, which brokers do not speak: OpenSSL is a twelfth of the time in which an instance starts.

asyncio goes without package ssl where it cannot be imported, so for that moment it cannot. A module file of a user's
own gets it back before it is loaded.
"""

from __future__ import annotations

import importlib
import sys


def load() -> None:
    """Import asyncio, without package ssl unless somebody has one of them already."""
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("asyncio")
    finally:
        del sys.modules["ssl"]


def complete() -> None:
    """Give asyncio the TLS that `load` has left out."""
    import ssl

    lacking = [name for name, module in sys.modules.items() if name.startswith("asyncio.") and _lacks_ssl(module)]
    for name in lacking:
        sys.modules[name].ssl = ssl  # type: ignore[attr-defined]
    if "asyncio.sslproto" in lacking:
        importlib.reload(sys.modules["asyncio.sslproto"])


def _lacks_ssl(module: object) -> bool:
    return getattr(module, "ssl", module) is None
