"""A job's output as server-sent events (the HTML standard, section 9.2): the page of a running job follows it so.

The id of an event is the number of events of the output's log that were read, so that a browser that was cut off goes
on where it was (`Last-Event-ID`).
"""

from __future__ import annotations

import codecs
import json
from collections.abc import AsyncIterator

from headrace.api import jobs
from headrace.api.broker_link import BrokerLink


async def events(link: BrokerLink, id: int, read: int) -> AsyncIterator[bytes]:
    """What a job writes after `read` events of its log, until its output ends. Raises OSError, BadOutput."""
    decoders: dict[str, codecs.IncrementalDecoder] = {}
    number = 0
    async for part in jobs.follow_output(link, id):
        number += 1
        if number <= read or not part.data:
            continue
        decoder = decoders.setdefault(part.stream, codecs.getincrementaldecoder("utf-8")("replace"))
        piece = {"stream": part.stream, "text": decoder.decode(part.data)}
        yield f"id: {number}\ndata: {json.dumps(piece)}\n\n".encode()
    yield b"event: end\ndata:\n\n"
