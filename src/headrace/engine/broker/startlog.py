"""The leader's entries in the record of starts and ends (`formats/spec/startlog.py`), which `flux startlog` shows.

They are made where the KVS is loaded by then. An rc1 script of the user's own, which loads the KVS itself, makes the
entry of the start itself, too: `flux startlog --post-start-event`.
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
    """Note the start, and say in the log when the instance was not shut down before."""
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
    """Note the orderly end."""
    await _append(broker, startlog.finish_event(time.time()))


async def _append(broker: BrokerBase, event: Event) -> bool:
    """Whether the event is in the record; what prevents that is logged, as an instance runs without a record, too."""
    op = {"key": startlog.KEY, "flags": APPEND, "dirent": val(encode(event).encode())}
    try:
        await broker.context.rpc("kvs.commit", {"namespace": "primary", "flags": 0, "ops": [op]})
    except RpcError as exc:
        broker.log(logging.ERROR, "broker", f"the {event.name} was not noted in {startlog.KEY}: {exc}")
        return False
    return True
