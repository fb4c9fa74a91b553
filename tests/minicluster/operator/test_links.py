"""The connection to a lead, as far as it remembers what the lead has done."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.minicluster.operator import links
from headrace.minicluster.operator.core.observed import Lead


class Client:
    """A lead that never answers, and is told everything."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def request(self, op: str, timeout: float | None = None, **fields: Any) -> dict[str, Any]:
        self.asked.append({"op": op, **fields})
        await asyncio.Event().wait()
        return {}

    async def watch(self) -> Any:
        await asyncio.Event().wait()
        yield {}

    def close(self) -> None:
        pass


def test_a_size_that_is_taken_back_before_there_is_an_answer_is_told_again() -> None:
    async def run() -> None:
        client = Client()
        link = links._Link("tcp://lead", client, lambda: None, lambda why: None)  # type: ignore[arg-type]
        link.lead = Lead(state="running", resized={"": 4, "gpu": 2})
        link.ask({"op": "resize", "size": 2})
        await asyncio.sleep(0)
        assert link.lead.resized == {"gpu": 2}, "until there is an answer the own pods have no size that is done"
        link.ask({"op": "resize", "size": 4})
        await asyncio.sleep(0)
        assert [one["size"] for one in client.asked] == [2, 4]
        link.close()

    asyncio.run(run())
