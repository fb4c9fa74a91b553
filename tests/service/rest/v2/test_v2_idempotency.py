"""Keys of submissions where a broker's response is lost, and when they are forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.formats.spec import jobspec_build
from headrace.service import jobs
from headrace.service.broker_link import Broker, BrokerUnreachable
from headrace.service.rest.v2.idempotency import Keys, OtherBody
from headrace.service.users import credential


def jobspec() -> dict[str, Any]:
    return jobspec_build.from_command(["true"], environment={}, cwd="/")


def test_a_job_whose_id_was_lost_is_found_and_one_that_never_came_is_sent_again(shared: Any) -> None:
    async def scenario() -> None:
        broker = Broker(shared.uri)
        link, keys, sent = broker.link(credential.owner()), Keys(), []

        async def send(arrives: bool, lost: bool, made: dict[str, Any]) -> int:
            if arrives:
                sent.append(await jobs.submit(link, made))
            if lost:
                raise BrokerUnreachable("gone")
            return sent[-1]

        async def submit(key: str, arrives: bool, lost: bool) -> int:
            made = jobspec()
            return await keys.submit(link, key, b"body", made, lambda: send(arrives, lost, made))

        with pytest.raises(BrokerUnreachable):
            await submit("arrived", True, True)
        assert await submit("arrived", True, False) == sent[0] and len(sent) == 1
        with pytest.raises(BrokerUnreachable):
            await submit("lost", False, True)
        assert await submit("lost", True, False) == sent[1] and len(sent) == 2
        # Requests at the same time are one.
        assert len(set(await asyncio.gather(*[submit("together", True, False) for _ in range(5)]))) == 1
        assert len(sent) == 3
        broker.close()

    asyncio.run(scenario())


def test_a_key_is_forgotten_after_a_day_and_is_its_users_own() -> None:
    class Link:
        identity = credential.user("a", 1000)

        async def gather(self, topic: str, obj: Any) -> list[Any]:
            """No jobs of before."""
            return []

    now, count = [0.0], [0]
    keys = Keys(lambda: now[0])

    async def send() -> int:
        count[0] += 1
        return count[0]

    def submit(body: bytes) -> int:
        return asyncio.run(keys.submit(Link(), "key", body, {}, send))  # type: ignore[arg-type]

    assert submit(b"one") == submit(b"one") == 1
    now[0] = 24 * 3600 - 1
    with pytest.raises(OtherBody, match="'key' was used"):
        submit(b"two")
    Link.identity = credential.user("b", 1001)
    assert submit(b"two") == 2
    Link.identity = credential.user("a", 1000)
    now[0] = 24 * 3600 + 1
    assert submit(b"two") == 3


def test_keys_are_known_to_a_service_that_was_started_again(shared: Any) -> None:
    async def scenario() -> None:
        broker = Broker(shared.uri)
        link = broker.link(credential.owner())

        async def submit(keys: Keys, key: str, body: bytes) -> int:
            made = jobspec()
            return await keys.submit(link, key, body, made, lambda: jobs.submit(link, made))

        ids = {key: await submit(Keys(), key, b"body") for key in ("before", "later")}
        again = Keys()
        for key, id in ids.items():
            assert await submit(again, key, b"body") == id
            with pytest.raises(OtherBody, match=f"'{key}' was used"):
                await submit(again, key, b"another body")
        assert await submit(again, "new", b"body") not in ids.values()
        broker.close()

    asyncio.run(scenario())


def test_the_key_of_a_job_is_not_that_of_one_submitted_again(shared: Any, served: Any) -> None:
    key = {"Idempotency-Key": "of the first"}
    first = served(shared).post("/v2/jobs", json={"command": "true"}, headers=key).json()["id"]
    client = served(shared)
    again = client.post(f"/v2/jobs/{first}/resubmit", json={}).json()["id"]
    assert client.post("/v2/jobs", json={"command": "true"}, headers=key).json()["id"] == first != again
    assert "idempotency-key" in client.get(f"/v2/jobs/{first}/jobspec").text
    assert "idempotency-key" not in client.get(f"/v2/jobs/{again}/jobspec").text
