from __future__ import annotations

import errno

import pytest

from headrace.engine.modules import barrier


def enter(client, name="b", nprocs=2):
    return client.start("barrier.enter", {"name": name, "nprocs": nprocs})


def test_all_are_let_go_when_the_last_has_entered_and_the_name_is_free_again(in_broker):
    async def scenario(broker):
        broker.load(barrier)
        one, two, three = (broker.client() for _ in range(3))
        for _ in range(2):
            tags = [enter(client, nprocs=3) for client in (one, two)]
            assert one.queues[tags[0]].empty()
            tags.append(enter(three, nprocs=3))
            replies = [await client.next(tag) for client, tag in zip((one, two, three), tags)]
            assert [(reply.errnum, reply.payload) for reply in replies] == [(0, None)] * 3
        assert (await one.rpc("barrier.stats-get"))["barriers"] == 0

    in_broker(scenario)


def test_one_process_is_alone_and_never_waits(in_broker):
    async def scenario(broker):
        broker.load(barrier)
        assert (await broker.client().call("barrier.enter", {"name": "x", "nprocs": 1})).errnum == 0

    in_broker(scenario)


def test_barriers_of_other_names_and_users_do_not_count(in_broker):
    async def scenario(broker):
        broker.load(barrier)
        owner, guest = broker.client(), broker.client(guest=True)
        waiting = [(owner, enter(owner)), (owner, enter(owner, "c")), (guest, enter(guest))]
        assert (await owner.rpc("barrier.stats-get"))["barriers"] == 3
        last = broker.client()
        assert (await last.next(enter(last))).errnum == 0
        assert (await owner.next(waiting[0][1])).errnum == 0
        assert all(client.queues[tag].empty() for client, tag in waiting[1:])

    in_broker(scenario)


def test_who_enters_twice_spoils_it_for_all(in_broker):
    async def scenario(broker):
        broker.load(barrier)
        one, two = broker.client(), broker.client()
        first, other = enter(one, nprocs=3), enter(two, nprocs=3)
        again = enter(one, nprocs=3)
        assert (await one.next(again)).errnum == errno.EEXIST
        assert (await one.next(first)).errnum == errno.ECONNABORTED
        assert (await two.next(other)).errnum == errno.ECONNABORTED

    in_broker(scenario)


def test_who_leaves_spoils_only_the_barriers_it_had_entered(in_broker):
    async def scenario(broker):
        broker.load(barrier)
        one, two = broker.client(), broker.client()
        enter(one)
        kept = enter(two, "c")
        waits = enter(two, nprocs=3, name="d")
        enter(one, nprocs=3, name="d")
        one.disconnect("barrier")
        assert (await two.next(waits)).errnum == errno.ECONNABORTED
        assert two.queues[kept].empty()

    in_broker(scenario)


def test_what_waits_when_the_module_goes_is_told(in_broker):
    async def scenario(broker):
        ctx = broker.load(barrier)
        client = broker.client()
        tag = enter(client)
        await client.rpc("barrier.stats-get")
        await ctx.unload()
        assert (await client.next(tag)).errnum == errno.ENOSYS

    in_broker(scenario)


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ({}, errno.EPROTO),
        ({"name": 1, "nprocs": 1}, errno.EPROTO),
        ({"name": "x", "nprocs": True}, errno.EPROTO),
        ({"name": "x", "nprocs": 0}, errno.EINVAL),
        ({"name": "b", "nprocs": 3}, errno.EINVAL),
    ],
)
def test_nonsense_is_refused(in_broker, body, number):
    async def scenario(broker):
        broker.load(barrier)
        client = broker.client()
        tag = enter(client)
        assert (await broker.client().call("barrier.enter", body)).errnum == number
        assert client.queues[tag].empty()

    in_broker(scenario)
