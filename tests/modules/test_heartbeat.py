from __future__ import annotations

import asyncio

import pytest

from headrace.broker.module import RpcError
from headrace.modules import heartbeat


def test_pulses_come_again_and_again(in_broker):
    async def scenario(broker):
        client = broker.client()
        broker.events.subscribe(client, "heartbeat.pulse")
        broker.load(heartbeat, "period=0.01")
        for _ in range(3):
            event = await asyncio.wait_for(client.events.get(), 5)
            assert event.topic == "heartbeat.pulse" and event.payload is None

    in_broker(scenario)


@pytest.mark.parametrize(
    ("args", "config", "period"),
    [
        ([], {}, 2.0),
        ([], {"heartbeat": {"period": "500ms"}}, 0.5),
        ([], {"heartbeat": {"period": 3}}, 3.0),
        (["period=1m"], {"heartbeat": {"period": 3}}, 60.0),
    ],
)
def test_the_period_comes_from_argument_configuration_or_default(args, config, period):
    assert heartbeat.period_of(args, config) == period


@pytest.mark.parametrize("args", [["period=x"], ["period=0"], ["period=inf"], ["nonsense"]])
def test_wrong_periods_are_refused(args):
    with pytest.raises(RpcError):
        heartbeat.period_of(args, {})


@pytest.mark.parametrize("table", [3, {"period": [1]}, {"period": True}, {"period": None}])
def test_a_configuration_of_the_wrong_kind_is_refused(table):
    with pytest.raises(RpcError, match="must be"):
        heartbeat.period_of([], {"heartbeat": table})
