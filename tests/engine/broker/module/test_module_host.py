"""Which modules a broker loads, how they are found, and what is left when one cannot be loaded."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.broker.attrs import AttrTable
from headrace.engine.broker.module.context import RpcError
from headrace.engine.broker.module.host import ModuleHost, exec_modules, names_for
from headrace.engine.broker.module.search import find, name_of

Run = Callable[..., None]
NOT = AttrTable({})


def test_the_leader_keeps_the_state_and_a_follower_what_runs_jobs() -> None:
    leader, follower = (names_for(rank, NOT, {}) for rank in (0, 1))
    assert {"job-manager", "kvs", "sched-graph"} <= set(leader)
    assert not {"job-manager", "kvs", "sched-graph"} & set(follower)
    assert set(follower) <= set(leader)


@pytest.mark.parametrize("config", [{"sched": {"module": "simple"}}, {"sched": "simple"}])
def test_the_scheduler_is_of_ones_choice(config: dict[str, Any]) -> None:
    assert "sched-simple" in names_for(0, NOT, config)
    assert "sched-graph" in names_for(0, AttrTable({"sched.module": "graph"}), config)
    with pytest.raises(RpcError, match="must be simple or graph, not 'none'"):
        names_for(0, NOT, {"sched": {"module": "none"}})


def test_modules_may_be_left_out_or_given_a_process() -> None:
    config = {"headrace": {"skip-modules": ["heartbeat"], "exec-modules": ["kvs"]}}
    assert "heartbeat" not in names_for(0, NOT, config)
    assert exec_modules(config) == {"kvs", "sched-graph", "sched-simple"}
    assert exec_modules({"headrace": {"exec-modules": "kvs"}}) == {"sched-graph", "sched-simple"}


def test_a_module_is_found_by_name_or_by_file(tmp_path: Path) -> None:
    heartbeat = find("heartbeat")
    assert heartbeat is not None and name_of(heartbeat, "heartbeat") == "heartbeat"
    path = tmp_path / "my_own.py"
    path.write_text("def load(ctx, args): pass\n")
    own = find(str(path))
    assert own is not None and name_of(own, str(path)) == "my-own"
    for missing in ("nosuch", str(tmp_path / "nosuch.py"), "../heartbeat", "resource_source", ""):
        assert find(missing) is None, missing


def hosted(broker: Any) -> ModuleHost:
    broker.forked, broker.modules = {}, ModuleHost(broker)
    broker.modules.register(broker.modules.builtin("broker"))
    return broker.modules


def test_a_module_that_fails_to_load_leaves_nothing(in_broker: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("def load(ctx, args):\n    ctx.service('bad', {})\n    raise ValueError('no: ' + args[0])\n")

    async def scenario(broker: Any) -> None:
        host, logged = hosted(broker), []
        broker.log = lambda _level, _source, text: logged.append(text)
        reply = (await broker.owner_peer().ask("module.load", {"path": str(path), "args": ["x"]}))[0]
        assert (reply.errnum, reply.text) == (errno.EINVAL, "ValueError: no: x")
        assert logged == [f"load {path}: no: x"]
        assert "bad" not in host.loaded
        assert "bad" not in broker.router.services

    in_broker(scenario)


def test_a_loaded_module_answers_is_listed_once_and_goes(in_broker: Run, tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_text("def load(ctx, args):\n    ctx.service('good', {'hi': lambda msg: {'args': args}})\n")

    async def scenario(broker: Any) -> None:
        hosted(broker)
        peer = broker.owner_peer()
        assert (await peer.ask("module.load", {"path": str(path), "args": ["a"]}))[0].errnum == 0
        assert (await peer.ask("good.hi", {}, tag=2))[0].obj == {"args": ["a"]}
        assert (await peer.ask("module.load", {"path": str(path)}, tag=3))[0].errnum == errno.EEXIST
        mods = (await peer.ask("module.list", tag=4))[0].obj["mods"]
        assert [(mod["path"], mod["services"]) for mod in mods if mod["name"] == "good"] == [(str(path), ["good"])]
        assert (await peer.ask("module.remove", {"name": "good"}, tag=5))[0].errnum == 0
        assert (await peer.ask("good.hi", {}, tag=6))[0].errnum == errno.ENOSYS
        assert (await peer.ask("module.remove", {"name": "good"}, tag=7))[0].errnum == errno.ENOENT
        assert (await peer.ask("module.remove", {"name": "broker"}, tag=8))[0].errnum == errno.EINVAL

    in_broker(scenario)


def test_a_module_whose_new_arguments_are_wrong_goes_on_with_the_old(in_broker: Run, tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_text(
        "def load(ctx, args):\n"
        "    ctx.service('good', {'hi': lambda msg: {'args': args}})\n"
        "    if 'wrong' in args:\n        raise ValueError('no')\n"
    )

    async def scenario(broker: Any) -> None:
        hosted(broker)
        peer = broker.owner_peer()
        load = {"path": str(path), "args": ["a"]}
        refused = (await peer.ask("module.reload", load))[0]
        assert (refused.errnum, refused.text) == (errno.ENOENT, "remove good: No such file or directory")
        assert (await peer.ask("module.reload", {**load, "force": True}, tag=2))[0].errnum == 0
        wrong = (await peer.ask("module.reload", {**load, "args": ["wrong"]}, tag=3))[0]
        assert (wrong.errnum, wrong.text) == (errno.EINVAL, "ValueError: no")
        assert (await peer.ask("good.hi", {}, tag=4))[0].obj == {"args": ["a"]}
        assert (await peer.ask("module.reload", {**load, "args": ["b"]}, tag=5))[0].errnum == 0
        assert (await peer.ask("good.hi", {}, tag=6))[0].obj == {"args": ["b"]}

    in_broker(scenario)


def test_a_module_is_loaded_or_removed_after_a_reload_that_failed(in_broker: Run, tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_text(
        "import itertools\nloads = itertools.count(1)\n"
        "def load(ctx, args):\n"
        "    if 'wrong' in args:\n        raise ValueError('no')\n"
        "    load = next(loads)\n"
        "    ctx.service('good', {'hi': lambda msg: {'args': args, 'load': load}})\n"
    )

    async def scenario(broker: Any) -> None:
        hosted(broker)
        peer, tag = broker.owner_peer(), iter(range(1, 99))

        async def ask(method: str, *args: str) -> int:
            body = {"path": str(path), "args": list(args)} if method != "remove" else {"name": "good"}
            return int((await peer.ask(f"module.{method}", body, tag=next(tag)))[0].errnum)

        async def running() -> Any:
            return (await peer.ask("good.hi", {}, tag=next(tag)))[0].obj

        assert await ask("load", "a") == 0
        assert await ask("load", "a") == errno.EEXIST
        assert await ask("reload", "wrong") == errno.EINVAL
        now = await running()
        # Nothing is to be done where the same module goes on.
        assert await ask("load", "a") == 0
        assert await running() == now
        assert await ask("load", "a") == errno.EEXIST
        assert await ask("reload", "wrong") == errno.EINVAL
        assert await ask("load", "wrong") == errno.EINVAL
        assert await ask("load", "b") == 0
        assert (await running())["args"] == ["b"]
        assert await ask("reload", "wrong") == errno.EINVAL
        assert await ask("remove") == 0
        assert await ask("remove") == errno.ENOENT
        assert await ask("load") == 0

    in_broker(scenario)


def test_a_module_that_checks_its_arguments_is_not_unloaded_for_wrong_ones(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []

    def check(_ctx: Any, args: list[str]) -> None:
        if args:
            raise RpcError(errno.EINVAL, "it takes none")

    picky = SimpleNamespace(check=check, load=lambda ctx, _args: ctx.on_unload(lambda: ends.append("unloaded")))
    monkeypatch.setattr("headrace.engine.broker.module.host.find", lambda _path: picky)

    async def scenario(broker: Any) -> None:
        hosted(broker)
        peer = broker.owner_peer()
        assert (await peer.ask("module.load", {"path": "picky"}))[0].errnum == 0
        refused = (await peer.ask("module.reload", {"path": "picky", "args": ["x"]}, tag=2))[0]
        assert (refused.errnum, refused.text, ends) == (errno.EINVAL, "it takes none", [])
        assert (await peer.ask("module.reload", {"path": "picky"}, tag=3))[0].errnum == 0
        assert ends == ["unloaded"]

    in_broker(scenario)


@pytest.mark.parametrize(
    ("body", "number"),
    [({}, errno.EPROTO), ({"path": "x", "args": "y"}, errno.EPROTO), ({"path": "nosuch"}, errno.ENOENT)],
)
def test_a_request_that_makes_no_sense_is_refused(in_broker: Run, body: dict[str, Any], number: int) -> None:
    async def scenario(broker: Any) -> None:
        hosted(broker)
        assert (await broker.owner_peer().ask("module.load", body))[0].errnum == number
        assert (await broker.guest().ask("module.load", {"path": "heartbeat"}))[0].errnum == errno.EPERM

    in_broker(scenario)
