"""What the job manager says to a scheduler while answers of it are on their way."""

from __future__ import annotations

from typing import Any

import pytest
from jobs_world import R, World

Run = Any


@pytest.mark.parametrize("first", ["request", "answer"])
@pytest.mark.parametrize("what", ["update", "hold", "cancel"])
def test_a_request_that_crosses_an_answer_of_the_scheduler_leaves_one_request_or_none(
    in_broker: Run, what: str, first: str
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        await world.until(lambda: id in world.allocs)
        request = world.allocs.pop(id)
        before = list(world.asked)

        def change() -> None:
            if what == "update":
                body = {"id": id, "updates": {"attributes.system.duration": 60.0}}
                tags.append(world.client.start("job-manager.update", body))
            elif what == "hold":
                tags.append(world.client.start("job-manager.urgency", {"id": id, "urgency": 0}))
                tags.append(world.client.start("job-manager.urgency", {"id": id, "urgency": 16}))
            else:
                tags.append(world.client.start("job-manager.raise", {"id": id, "type": "cancel", "severity": 0}))

        tags: list[int] = []
        steps = [change, lambda: world.ctx.respond(request, {"id": id, "type": 0, "R": R})]
        for step in steps if first == "request" else reversed(steps):
            step()
        replies = [await world.client.next(tag) for tag in tags]
        await world.until(lambda: id in world.starts or id in world.freed or bool(world.kills))
        if first == "answer":
            # It runs: what can be changed then was changed, the rest was refused.
            assert world.asked == before and id in world.starts
            assert [reply.errnum for reply in replies] == ([22, 22] if what == "hold" else [0])
            return
        assert [reply.errnum for reply in replies] == [0] * len(tags)
        assert world.freed == [id] and id not in world.starts
        assert world.asked == (before if what == "cancel" else [*before, id])
        if what != "cancel":
            await world.run(id)
        assert (await world.events(id))[-1][0] == "clean"

    in_broker(scenario)
