"""The leader's entries in the record of starts and ends, which `flux startlog` shows.

The format is in `formats/spec/startlog.py`. The entries are written only if the KVS is loaded. If a user's own rc1
script loads the KVS, the script must also record the start: `flux startlog --post-start-event`.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from headrace.formats.spec import startlog
from headrace.formats.spec.eventlog import Event, EventlogError, decode, encode
from headrace.formats.spec.kvs_flags import APPEND
from headrace.formats.spec.treeobj import decode_val, val

from .answers import RpcError

if TYPE_CHECKING:
    from .parts import BrokerBase


async def post_start(broker: BrokerBase) -> None:
    """Record the start, and log a warning if the instance was not shut down properly before."""
    if not await _append(broker, startlog.start_event(time.time(), broker.attrs.get("version"))):
        return
    found = await broker.context.rpc("kvs.lookup", {"key": startlog.KEY, "namespace": "primary", "flags": 0})
    try:
        runs = startlog.runs(decode(decode_val(found["val"]).decode()))
    except (EventlogError, UnicodeDecodeError) as exc:
        broker.log(logging.ERROR, "broker", f"{startlog.KEY}: {exc}")
        return
    if startlog.follows_a_crash(runs):
        broker.log(logging.WARNING, "broker", "Flux was not shut down properly.")


async def post_finish(broker: BrokerBase) -> None:
    """Record the orderly end."""
    await _append(broker, startlog.finish_event(time.time()))


async def _append(broker: BrokerBase, event: Event) -> bool:
    """Append `event` to the record. Returns False, and logs the reason, on failure.

    An instance also runs without a record.
    """
    op = {"key": startlog.KEY, "flags": APPEND, "dirent": val(encode(event).encode())}
    try:
        await broker.context.rpc("kvs.commit", {"namespace": "primary", "flags": 0, "ops": [op]})
    except RpcError as exc:
        broker.log(logging.ERROR, "broker", f"cannot record {event.name} in {startlog.KEY}: {exc}")
        return False
    return True
