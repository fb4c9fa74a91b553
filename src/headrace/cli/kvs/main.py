"""`flux kvs SUBCOMMAND`: the table of its subcommands; reading, writing and eventlogs have files of their own."""

from __future__ import annotations

import os
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import dispatch
from headrace.spec.kvs_flags import WAITCREATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from headrace.cli.common.getopts import Options
    from headrace.client.handle import Handle

PREFIX = "flux-kvs: "

NAMESPACE = ("N", "namespace", "NAME", "Work in this namespace (default: FLUX_KVS_NAMESPACE, else primary)")

_TABLE = {
    "get": ("Print the values of keys", "read"),
    "put": ("Set keys to values, all in one commit", "write"),
    "dir": ("Print the keys of a directory with their values", "list"),
    "ls": ("Print the names in directories, in columns", "list"),
    "unlink": ("Remove keys, all in one commit", "write"),
    "link": ("Make a key that stands for another (a symbolic link)", "write"),
    "readlink": ("Print what symbolic links point to", "read"),
    "mkdir": ("Make empty directories", "write"),
    "copy": ("Copy a key, or a directory with all in it", "write"),
    "move": ("Rename a key, or a directory with all in it", "write"),
    "dropcache": ("Have the KVS forget what it can load again", "namespace"),
    "getroot": ("Print a reference to the whole KVS as it is now", "read"),
    "version": ("Print the number of the last commit", "read"),
    "wait": ("Wait until this broker has seen that commit", "read"),
    "namespace": ("Make, remove and list namespaces", "namespace"),
    "eventlog": ("Append to eventlogs, print them, wait for events", "eventlog"),
}


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-kvs", argv, _TABLE)
    full = f"headrace.cli.kvs.{_TABLE[name][1]}"
    __import__(full)
    handler = getattr(sys.modules[full], name if name != "dir" else "dir_")
    return int(handler(rest))


def namespace(options: Options) -> str:
    return options.get("namespace", os.environ.get("FLUX_KVS_NAMESPACE", "primary"))


def snapshot(options: Options) -> Any:
    """The tree object (RFC 11) that --at gives, None without it. Raises CommandError."""
    if not options.has("at"):
        return None
    import json

    try:
        return json.loads(options.get("at"))
    except ValueError:
        raise CommandError(f"--at={options.get('at')}: give a tree object, as `flux kvs getroot` prints it") from None


def lookup(handle: Handle, key: str, space: str, flags: int, root: Any = None) -> Dict[str, Any]:
    """The tree object (RFC 11) under `key`, looked up as `flags` say, in the snapshot `root` if one is given."""
    request: Dict[str, Any] = {"key": key, "namespace": space, "flags": flags}
    if root is not None:
        request["rootdir"] = root
    found: Dict[str, Any] = handle.rpc("kvs.lookup", request).get()["val"]
    return found


def wait_for(handle: Handle, key: str, space: str, flags: int) -> Dict[str, Any]:
    """The tree object under `key`, as soon as there is one."""
    request = {"key": key, "namespace": space, "flags": flags | WAITCREATE}
    call = handle.stream("kvs-watch.lookup", request)
    found: Dict[str, Any] = call.get()["val"]
    call.cancel("kvs-watch.cancel")
    return found


def refused(call: str, exc: OSError) -> CommandError:
    """What Flux's function `call` says of a refusal, and in parentheses what the broker says beyond it."""
    plain = os.strerror(exc.errno or 0)
    more = f" ({exc.strerror})" if exc.strerror and exc.strerror != plain else ""
    return CommandError(f"{call}: {plain}{more}")


def commit(handle: Handle, space: str, ops: List[Dict[str, Any]], flags: int = 0) -> Dict[str, Any]:
    """Commit a transaction and return its root reference and sequence."""
    answer: Dict[str, Any] = handle.rpc("kvs.commit", {"namespace": space, "flags": flags, "ops": ops}).get()
    return answer


def op(key: str, dirent: Any, flags: int = 0) -> Dict[str, Any]:
    """One operation of a transaction; a null dirent unlinks."""
    return {"key": key, "flags": flags, "dirent": dirent}


def val(data: bytes) -> Dict[str, Any]:
    """A tree object that holds `data` itself."""
    from binascii import b2a_base64

    return {"ver": 1, "type": "val", "data": b2a_base64(data, newline=False).decode()}


def data_of(found: Dict[str, Any]) -> bytes:
    """The bytes of a value tree object."""
    from binascii import a2b_base64

    return a2b_base64(found["data"])
