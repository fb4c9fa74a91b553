"""CURVE certificates as text, for `flux keygen` and czmq (ZeroMQ RFC 4: ZPL, 32: Z85)."""

from __future__ import annotations

import re
from typing import Tuple

_KEY = re.compile(r"^\s*(public-key|secret-key)\s*=\s*(\"|')(.{40})\2\s*$", re.MULTILINE)
_Z85 = re.compile(r"[0-9a-zA-Z.:+=^!/*?&<>()\[\]{}@%$#-]{40}\Z")


def key_pair(certificate: str) -> Tuple[bytes, bytes]:
    """The public and the secret key (Z85) in a certificate's text.

    Raises ValueError if one is missing or invalid.
    """
    found = {name: key for name, _, key in _KEY.findall(certificate)}
    missing = [name for name in ("public-key", "secret-key") if name not in found]
    if missing:
        raise ValueError(f'has no {" and no ".join(missing)} = "...", of 40 characters in quotes')
    for name, key in found.items():
        if not _Z85.match(key):
            raise ValueError(f"its {name} is not in Z85 (ZeroMQ RFC 32)")
    return found["public-key"].encode(), found["secret-key"].encode()
