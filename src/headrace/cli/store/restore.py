"""`flux restore`: loads an archive of `flux dump` into a KVS key, a checkpoint or the instance."""

from __future__ import annotations

import sys
import time

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.cli.store.archive_reader import PREFIX, Restore, opened
from headrace.formats.spec import treeobj
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Union

    Tree = Dict[str, Union["Tree", Dict[str, Any]]]

_COMMAND = Command(
    "flux-restore",
    "[OPTIONS] INFILE",
    "Load an archive of flux dump into the KVS; - is standard input",
    (
        ("v", "verbose", "", "Print the name of each key"),
        ("q", "quiet", "", "Print no progress"),
        ("", "checkpoint", "", "Make its keys, except those of jobs, the checkpoint with which the KVS starts"),
        ("", "key", "KEY", "Store its keys in the directory KEY of the KVS"),
        ("", "instance", "", "Add its keys and jobs to this instance; pending jobs wait here again"),
        ("", "no-cache", "", "Store blobs in the backing store, bypassing the broker's cache"),
        ("", "size-limit", "SIZE", "Skip values larger than SIZE"),
        ("", "maxreqs", "N", "Maximum number of concurrent requests (default: 1)"),
        ("", "sd-notify", "", "No effect: systemd is not notified"),
    ),
)


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv)
    (path,) = options.need(1, 1)
    if sum(map(options.has, ("checkpoint", "key", "instance"))) != 1:
        raise CommandError("Please specify a restore target with --checkpoint or --key")
    handle = Handle()
    if options.has("instance"):
        from headrace.cli.store.restore_instance import restore_instance

        return restore_instance(handle, options, path)
    if options.has("checkpoint") and _kvs_is_loaded(handle):
        raise CommandError("please unload kvs module before using --checkpoint")
    restore = Restore(handle, options)
    with opened(path) as tar:
        ref = restore.take(tar)
    where = "checkpoint" if options.has("checkpoint") else f"KVS key '{options.get('key')}'"
    if not options.has("quiet"):
        print(f"{PREFIX}writing snapshot {ref} to {where}", file=sys.stderr)
    try:
        if options.has("checkpoint"):
            put_checkpoint(handle, ref)
        else:
            put_key(handle, options.get("key"), ref)
    except OSError as exc:
        raise CommandError(f"error writing snapshot to {where}: {exc.strerror}") from None
    return 0


def _kvs_is_loaded(handle: Handle) -> bool:
    return any(module["name"] == "kvs" for module in handle.rpc("module.list", {}).get()["mods"])


def put_checkpoint(handle: Handle, ref: str) -> None:
    """Write a checkpoint, so that the KVS starts with the directory `ref`. Raises OSError."""
    value = {"version": 1, "rootref": ref, "sequence": 0, "timestamp": time.time(), "restored": True}
    handle.rpc("content-backing.checkpoint-put", {"key": "kvs-primary", "value": value}, nodeid=0).get()


def put_key(handle: Handle, key: str, ref: str) -> None:
    """Commit the directory `ref` under `key`. Raises OSError."""
    op = {"key": key, "flags": 0, "dirent": treeobj.dirref(ref)}
    handle.rpc("kvs.commit", {"namespace": "primary", "flags": 0, "ops": [op]}).get()
