"""KVS requests, tree objects (RFC 11) and options that `flux kvs` and `flux archive` share."""

from __future__ import annotations

import os

from headrace.cli.common.errors import CommandError
from headrace.formats.spec.kvs_flags import WAITCREATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from headrace.cli.common.getopts import Options
    from headrace.wire.client.handle import Handle

NAMESPACE = ("N", "namespace", "NAME", "Use this namespace (default: FLUX_KVS_NAMESPACE, or primary)")


def namespace(options: Options) -> str:
    return options.get("namespace", os.environ.get("FLUX_KVS_NAMESPACE", "primary"))


def snapshot(options: Options) -> Any:
    """The tree object (RFC 11) of --at, None without it. Raises CommandError."""
    if not options.has("at"):
        return None
    import json

    try:
        return json.loads(options.get("at"))
    except ValueError:
        raise CommandError(f"--at={options.get('at')}: give a tree object, as `flux kvs getroot` prints it") from None


def lookup(handle: Handle, key: str, space: str, flags: int, root: Any = None) -> Dict[str, Any]:
    """Look up the tree object (RFC 11) under `key` with `flags`, in the snapshot `root` if it is given."""
    request: Dict[str, Any] = {"key": key, "namespace": space, "flags": flags}
    if root is not None:
        request["rootdir"] = root
    found: Dict[str, Any] = handle.rpc("kvs.lookup", request).get()["val"]
    return found


def wait_for(handle: Handle, key: str, space: str, flags: int) -> Dict[str, Any]:
    """Wait until `key` exists and return its tree object."""
    request = {"key": key, "namespace": space, "flags": flags | WAITCREATE}
    call = handle.stream("kvs-watch.lookup", request)
    found: Dict[str, Any] = call.get()["val"]
    call.cancel("kvs-watch.cancel")
    return found


def refused(call: str, exc: OSError) -> CommandError:
    """The text of Flux's function `call` for an error, with the broker's own text in parentheses."""
    plain = os.strerror(exc.errno or 0)
    more = f" ({exc.strerror})" if exc.strerror and exc.strerror != plain else ""
    return CommandError(f"{call}: {plain}{more}")


def commit(handle: Handle, space: str, ops: List[Dict[str, Any]], flags: int = 0) -> Dict[str, Any]:
    """Commit a transaction and return its root reference and sequence."""
    answer: Dict[str, Any] = handle.rpc("kvs.commit", {"namespace": space, "flags": flags, "ops": ops}).get()
    return answer


def op(key: str, dirent: Any, flags: int = 0) -> Dict[str, Any]:
    """An operation of a transaction; a `dirent` of None unlinks the key."""
    return {"key": key, "flags": flags, "dirent": dirent}


def val(data: bytes) -> Dict[str, Any]:
    """A tree object of type val that contains `data`."""
    from binascii import b2a_base64

    return {"ver": 1, "type": "val", "data": b2a_base64(data, newline=False).decode()}


def data_of(found: Dict[str, Any]) -> bytes:
    """The bytes in a tree object of type val."""
    from binascii import a2b_base64

    return a2b_base64(found["data"])
