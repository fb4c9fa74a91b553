from __future__ import annotations

import errno

import pytest

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.content import service as content
from headrace.engine.modules.content import sqlite


def test_a_flush_has_somewhere_to_go_while_the_module_is_there(in_broker):
    async def scenario(broker):
        broker.load(content)
        client = broker.client()
        assert (await client.call("content.flush")).errnum == errno.ENOSYS
        ctx = broker.context("content-sqlite")
        await sqlite.load(ctx, ["truncate"])
        assert broker.logged[-1].endswith("truncate: has no effect")
        assert (await client.call("content.flush")).errnum == 0
        await ctx.unload()
        assert (await client.call("content.flush")).errnum == errno.ENOSYS

    in_broker(scenario)


def test_there_is_one_store_at_a_time(in_broker):
    async def scenario(broker):
        broker.load(content)
        client = broker.client()
        assert (await client.call("content.register-backing", {"name": 1})).errnum == errno.EPROTO
        await client.rpc("content.register-backing", {"name": "other"})
        with pytest.raises(RpcError) as refused:
            await sqlite.load(broker.context("content-sqlite"), [])
        assert refused.value.errnum == errno.EBUSY
        await client.rpc("content.unregister-backing")
        assert (await client.call("content.unregister-backing")).errnum == errno.EINVAL

    in_broker(scenario)


def test_without_the_content_service_it_cannot_be_loaded(in_broker):
    async def scenario(broker):
        with pytest.raises(RpcError) as refused:
            await sqlite.load(broker.context("content-sqlite"), [])
        assert refused.value.errnum == errno.ENOSYS
        with pytest.raises(RpcError, match="unknown argument 'x'"):
            await sqlite.load(broker.context("again"), ["x"])

    in_broker(scenario)
