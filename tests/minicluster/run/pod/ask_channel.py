"""Asks a lead over its channel: `ask_channel.py ADDRESS KEYS`, requests as JSON lines on stdin, answers on stdout.

`{"op": "watch", "until": {...}}` prints the first state that has these values; any other request its answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from headrace.formats.spec.curve_certificate import key_pair
from headrace.minicluster.operator.channel import ChannelClient, ChannelError


async def main(address: str, folder: str) -> None:
    server, _ = key_pair(Path(folder, "channel.cert").read_text())
    client = ChannelClient(f"tcp://{address}", server, key_pair(Path(folder, "client.cert").read_text()))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        wanted = request.pop("until", {})
        try:
            if request["op"] == "watch":
                async for state in client.watch():
                    if all(state.get(name) == value for name, value in wanted.items()):
                        answer = state
                        break
            else:
                answer = await client.request(**request)
        except ChannelError as exc:
            answer = {"refused": str(exc)}
        print(json.dumps(answer), flush=True)
    client.close()


asyncio.run(main(*sys.argv[1:]))
