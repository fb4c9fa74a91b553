"""Values of wrong kinds for every key of the configuration: refused with the key's name, by a start and by a running
instance, which goes on as before."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from instance import start

from headrace.formats.config import schema as config_schema

# One of each kind that TOML has; dates are text to a running instance.
VALUES: list[Any] = [-1, 1.5, True, "\t", [[]], [1], {"\t": 1}]
# Keys without effect whose kind Flux does not document.
OF_ANY_KIND = {"resource.history", "resource.verify", "queues.q.parent"}

# Reads a JSON list of configurations; prints the error that each of them got, or null.
LOAD = """
import json, sys, flux
handle = flux.Flux()
for config in json.load(open(sys.argv[1])):
    try:
        handle.rpc("config.load", config).get()
        print("null")
    except OSError as exc:
        print(json.dumps(exc.strerror))
handle.rpc("config.load", {}).get()
"""


def keys() -> Iterator[tuple[str, ...]]:
    def inside(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for key, kind in table.items():
            yield (*path, key)
            if isinstance(kind, dict):
                yield from inside(kind, (*path, key))

    yield from inside({**config_schema.TABLES, "queues": {"q": config_schema.QUEUE}}, ())


def config_with(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return dict(value)


def test_an_instance_refuses_a_value_of_a_wrong_kind_for_any_key_and_names_the_key(tmp_path: Path) -> None:
    asked = [(path, value) for path in keys() for value in VALUES]
    file = tmp_path / "configs.json"
    file.write_text(json.dumps([config_with(path, value) for path, value in asked]))
    done = start("-s1", "sh", "-c", f'{sys.executable} -c "$LOAD" {file} && flux run echo on', LOAD=LOAD)
    assert (done.rc, done.left) == (0, []), done.err
    assert "Traceback" not in done.err
    *lines, last = done.out.splitlines()
    assert last == "on"
    taken: dict[str, int] = {}
    for (path, value), line in zip(asked, map(json.loads, lines), strict=True):
        name = ".".join(path)
        taken[name] = taken.get(name, 0) + (line is None)
        assert line is None or path[-1] in line, (name, value, line)
    assert len(taken) > 100
    assert {name for name, count in taken.items() if count > 3} <= OF_ANY_KIND


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("access = 1", "flux-broker: access: must be a table, not 1 (in {})"),
        ("access = []\ntbon = 3", "flux-broker: access: must be a table, not [] (in {})"),
        ("tbon = 3\naccess.foo = 1", "flux-broker: {}: tbon: must be a table, not 3"),
        ("resource.noverify = 1", "flux-broker: resource.noverify: must be true or false, not 1 (in {})"),
        ("resource.config = 'x'", "flux-broker: resource.config: must be an array of tables, not 'x' (in {})"),
        ("bootstrap.hosts = ['a']", "flux-broker: {}: bootstrap.hosts: must be an array of tables, not ['a']"),
        ("job-manager.plugins = 1", "flux-broker: {}: job-manager.plugins: must be an array of tables, not 1"),
        ("mine = [1, {x = inf}]", "flux-broker: {}: mine[1].x: must be a finite number, not inf"),
        ("heartbeat.period = 1979-05-27", "heartbeat.period: invalid duration '1979-05-27'"),
    ],
)
def test_a_start_names_the_file_and_the_key(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "conf.toml"
    file.write_text(text)
    done = start("-s1", "-c", str(file), "echo", "ran")
    assert (done.rc, done.out, done.left) == (1, "", []), done.err
    assert says.format(file) in done.err
    assert "Traceback" not in done.err


def test_a_configuration_with_dates_is_loaded_and_one_with_infinity_is_refused() -> None:
    done = start(
        r"""
        printf 'mine.day = 1979-05-27\n' | flux config load 2>/dev/null; flux config get mine.day
        printf 'mine.much = inf\n' | flux config load
        """
    )
    assert done.out == "1979-05-27\n"
    assert done.err.startswith("flux-config: standard input: mine.much: must be a finite number, not inf\n")
