from __future__ import annotations

import asyncio
import time

import pytest

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules import heartbeat


def test_pulses_come_again_and_again(in_broker):
    async def scenario(broker):
        client = broker.client()
        broker.events.subscribe(client, "heartbeat.pulse")
        broker.load(heartbeat, "period=0.01")
        for _ in range(3):
            event = await asyncio.wait_for(client.events.get(), 60)
            assert event.topic == "heartbeat.pulse" and event.payload is None

    in_broker(scenario)


@pytest.mark.parametrize(
    ("args", "table", "settings"),
    [
        ([], {}, (2.0, 300.0, 3)),
        ([], {"period": "500ms", "timeout": "1m", "warn_thresh": 0}, (0.5, 60.0, 0)),
        ([], {"timeout": "infinity"}, (2.0, -1.0, 3)),
        ([], {"timeout": "0"}, (2.0, -1.0, 3)),
        (["period=1m", "warn_thresh=7"], {"period": "3s"}, (60.0, 300.0, 7)),
    ],
)
def test_settings_come_from_argument_configuration_or_default(args, table, settings):
    assert heartbeat.settings_of(args, {"heartbeat": table}) == settings


@pytest.mark.parametrize(
    ("args", "table", "says"),
    [
        (["period=x"], {}, "heartbeat.period: "),
        (["period=0"], {}, "heartbeat.period is 0s, it must be finite and greater than 0"),
        (["period=inf"], {}, "heartbeat.period is infs, it must be finite"),
        (["nonsense"], {}, "heartbeat: unknown argument 'nonsense', known are period=FSD, timeout=FSD, warn_thresh=N"),
        (["warn_thresh=x"], {}, "heartbeat.warn_thresh: must be a number of periods, 0 or more, not 'x'"),
        ([], 3, "heartbeat: must be a table, not 3"),
        ([], {"period": 3}, "heartbeat.period: must be a duration such as '2s', not 3"),
        ([], {"timeout": True}, "heartbeat.timeout: must be a duration such as '2s', not True"),
        ([], {"timeout": "1s"}, "heartbeat.timeout is 1s, less than the period of 2s"),
        ([], {"warn_thresh": -1}, "heartbeat.warn_thresh: must be a number of periods, 0 or more, not -1"),
        ([], {"warn_thresh": True}, "heartbeat.warn_thresh: must be a number of periods, 0 or more, not True"),
    ],
)
def test_wrong_settings_are_refused_with_what_would_be_right(args, table, says):
    with pytest.raises(RpcError) as refused:
        heartbeat.settings_of(args, {"heartbeat": table})
    assert refused.value.text.startswith(says)


def test_a_configuration_that_changes_is_followed_and_an_absent_key_has_its_default_again(in_broker):
    async def scenario(broker):
        broker.load(heartbeat)
        client = broker.client()
        for table in ({"period": "5ms", "timeout": "infinity", "warn_thresh": 1}, {}):
            broker.config = {"heartbeat": table}
            await client.rpc("heartbeat.config-reload")
            stats = await client.rpc("heartbeat.stats-get")
            if table:
                assert stats == {"period": 0.005, "timeout": -1.0, "warn_thresh": 1, "count": stats["count"]}
                while not (await client.rpc("heartbeat.stats-get"))["count"]:
                    await asyncio.sleep(0.001)
        assert stats == {"period": 2.0, "timeout": 300.0, "warn_thresh": 3, "count": stats["count"]}

    in_broker(scenario)


def test_a_broker_that_hears_no_pulse_says_so_once_and_ends_after_the_timeout(in_broker):
    async def scenario(broker):
        ended = []
        broker.context("broker").service("broker", {"heartbeat-lost": ended.append})
        # One that does not lead hears what others publish.
        broker.rank = 1
        broker.load(heartbeat, "period=0.01", "timeout=0.2", "warn_thresh=2")
        publisher = broker.context("publisher")
        while not broker.logged:
            await asyncio.sleep(0.005)
        publisher.publish("heartbeat.pulse")
        while not ended:
            await asyncio.sleep(0.005)
        overdue = [line for line in broker.logged if line.startswith("heartbeat: heartbeat overdue: the last one was ")]
        assert len(overdue) == 2
        assert broker.logged[-1].startswith("heartbeat: no heartbeat for ")

    in_broker(scenario)


def test_time_in_which_a_broker_was_suspended_is_no_silence(in_broker):
    async def scenario(broker):
        ended = []
        broker.context("broker").service("broker", {"heartbeat-lost": ended.append})
        broker.rank = 1
        broker.load(heartbeat, "period=0.02", "timeout=0.3", "warn_thresh=0")
        # Nothing of this process runs meanwhile, as after SIGSTOP.
        stopped = time.monotonic()
        while time.monotonic() < stopped + 0.6:
            pass
        resumed = time.monotonic()
        await asyncio.sleep(0)
        assert not ended
        while not ended:
            await asyncio.sleep(0.005)
        assert time.monotonic() - resumed > 0.15

    in_broker(scenario)
