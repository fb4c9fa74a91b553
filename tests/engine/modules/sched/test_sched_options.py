"""Arguments that every scheduler takes."""

from __future__ import annotations

import errno
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sched_world import World

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.sched import service as sched_graph
from headrace.engine.modules.sched import simple as sched_simple
from headrace.engine.modules.sched.options import Log, OptionError, parse, read

Run = Callable[..., None]


@pytest.mark.parametrize(
    ("args", "limit"),
    [
        ([], 8),
        (["queue-depth=4"], 4),
        (["queue-depth=unlimited"], 0),
        (["mode=limited=3"], 3),
        (["mode=single"], 1),
        (["mode=single", "mode=unlimited"], 0),
    ],
)
def test_the_queue_depth_has_older_spellings_and_the_last_word_counts(args: list[str], limit: int) -> None:
    found = parse(args, 8)
    assert found.limit == limit
    assert found.sched_ready == ({"mode": "limited", "limit": limit} if limit else {"mode": "unlimited"})
    assert str(found) == f"queue-depth={limit or 'unlimited'} log-level=info pool-class=Rv1Pool"


def test_what_is_not_built_in_is_left_to_the_scheduler() -> None:
    found = parse(["alloc-mode=best-fit", "log-level=DEBUG", "test-hello-nopartial", "x"])
    assert found.rest == ("alloc-mode=best-fit", "x")
    assert (found.log_level, found.partial_ok) == (7, False)


@pytest.mark.parametrize(
    ("arg", "says"),
    [
        ("queue-depth=0", "queue-depth='0' is invalid: expected a positive integer or 'unlimited'"),
        ("queue-depth=", "queue-depth='' is invalid: expected a positive integer or 'unlimited'"),
        ("mode=limited=x", "mode=limited= requires a positive integer, got 'x'"),
        ("mode=limited", "mode='limited' is invalid: expected limited=N, unlimited or single"),
        ("mode", "mode='' is invalid: expected limited=N, unlimited or single"),
        ("log-level=loud", "log-level='loud' is invalid: expected one of emerg, alert, crit, err, "),
    ],
)
def test_a_value_that_means_nothing_is_refused(arg: str, says: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse([arg])
    assert str(refused.value).startswith(says)


def test_the_log_has_what_is_severe_enough(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        log = Log(broker.context("s"), 4)
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            log(level, str(level))
        assert broker.logged == [f"s: {logging.WARNING}", f"s: {logging.ERROR}"]

    in_broker(scenario)


@pytest.mark.parametrize("module", [sched_graph, sched_simple])
def test_a_pool_class_that_cannot_be_used_is_refused_and_the_log_says_where_it_failed(
    in_broker: Run, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_pool.py").write_text("pool_class = Other = dict\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    async def scenario(broker: Any) -> None:
        for name, says in (
            ("no_such_module", "No module named 'no_such_module'"),
            ("json", "module 'json' has no attribute 'pool_class'"),
            ("own-pool", "the scheduler's own, Rv1Pool, is the only one it uses"),
            ("own_pool:Other", "the scheduler's own, Rv1Pool, is the only one it uses"),
        ):
            broker.logged.clear()
            with pytest.raises(RpcError) as refused:
                broker.load(module, "log-level=debug", f"pool-class={name}")
            assert refused.value.errnum == errno.EINVAL
            assert refused.value.text == f"Failed to load pool class '{name}': {says}"
            traces = [line for line in broker.logged if "Pool class load traceback: Traceback" in line]
            assert len(traces) == ("own" not in name)
            assert broker.logged[-1] == f"{module.NAME}: {refused.value.text}"

    in_broker(scenario)
    sys.modules.pop("own_pool", None)


@pytest.mark.parametrize("name", ["Rv1Pool", "flux.resource.Rv1Pool"])
def test_the_pool_class_there_is_may_be_named(in_broker: Run, name: str) -> None:
    async def scenario(broker: Any) -> None:
        options, _ = read(broker.context("s"), [f"pool-class={name}"])
        assert options.pool_class == "Rv1Pool"

    in_broker(scenario)


@pytest.mark.parametrize("module", [sched_graph, sched_simple])
def test_an_end_of_the_instance_that_moves_is_logged(in_broker: Run, module: Any) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, module=module)
        await world.settle()
        world.change(expiration=4_000_000_000.5)
        await world.settle()
        text = "resource expiration updated to 4000000000.50"
        assert broker.logged[-1].startswith(f"{module.NAME}: ") and broker.logged[-1].endswith(text)
        assert re.search("sched-simple.*expiration updated", broker.logged[-1])

    in_broker(scenario)
