"""Building jobspecs: what the commands of real Flux write, key by key."""

import json
from pathlib import Path
from typing import Any, Callable, Dict, Optional

import pytest

from headrace.formats.spec import jobspec
from headrace.formats.spec import jobspec_build as build


def compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


# -- recorded


def test_run_with_many_options_is_as_recorded_byte_for_byte() -> None:
    spec = build.from_command(
        ["a.out", "arg"],
        4,
        num_nodes=2,
        duration="5m",
        environment={},
        cwd="/samp",
        name="jn",
        output="x.out",
        rlimits={"cpu": -1, "nproc": 96365},
        queue="batch",
    )
    build.set_shell_option(spec, "signal", build.parse_signal("USR1@10s"))
    build.set_shell_option(spec, *build.parse_setting("cpu-affinity=per-task"))
    build.set_attribute(spec, "dependencies", [{"scheme": "afterok", "value": "f1"}])
    build.set_attribute(spec, *build.parse_setting("user.foo=bar"))
    assert json.dumps(spec) == (
        '{"resources": [{"type": "node", "count": 2, "with": [{"type": "slot", "count": 2, "with":'
        ' [{"type": "core", "count": 1}], "label": "task"}]}], "tasks": [{"command": ["a.out", "arg"], "slot": "task",'
        ' "count": {"per_slot": 1}}], "attributes": {"system": {"duration": 300.0, "environment": {}, "cwd": "/samp",'
        ' "job": {"name": "jn"}, "shell": {"options": {"output": {"stdout": {"type": "file", "path": "x.out"}},'
        ' "rlimit": {"cpu": -1, "nproc": 96365}, "signal": {"signum": 10, "timeleft": 10.0},'
        ' "cpu-affinity": "per-task"}}, "queue": "batch", "dependencies": [{"scheme": "afterok", "value": "f1"}]},'
        ' "user": {"foo": "bar"}}, "version": 1}'
    )


def test_batch_is_as_recorded_byte_for_byte() -> None:
    spec = build.from_batch_command(
        "#!/bin/sh\nhostname\n",
        "hostname",
        num_nodes=1,
        environment={"A": "b"},
        cwd="/home/user",
        output="flux-{{id}}.out",
        rlimits={"cpu": -1},
    )
    assert json.dumps(spec) == (
        '{"resources": [{"type": "node", "count": 1, "with": [{"type": "slot", "count": 1, "with":'
        ' [{"type": "core", "count": 1}], "label": "task"}]}], "tasks": [{"command": ["flux", "broker",'
        ' "{{tmpdir}}/script"], "slot": "task", "count": {"per_slot": 1}}], "attributes": {"system": {"duration": 0,'
        ' "environment": {"A": "b"}, "cwd": "/home/user", "job": {"name": "hostname"}, "shell": {"options": {"output":'
        ' {"stdout": {"type": "file", "path": "flux-{{id}}.out"}}, "per-resource": {"type": "node"}, "mpi": "none",'
        ' "exit-timeout": "none", "rlimit": {"cpu": -1}}}, "files": {"script": {"mode": 33216,'
        ' "data": "#!/bin/sh\\nhostname\\n", "encoding": "utf-8"}}}}, "version": 1}'
    )
    jobspec.validate(spec, version=1)


@pytest.mark.parametrize(
    ("spec", "resources"),
    [
        (
            build.from_command(["x"], 2, num_nodes=2, exclusive=True),
            '[{"count":2,"exclusive":true,"type":"node","with":[{"count":1,"label":"task","type":"slot",'
            '"with":[{"count":1,"type":"core"}]}]}]',
        ),
        (
            build.from_command(["x"], 4, 2, 1),
            '[{"count":4,"label":"task","type":"slot","with":[{"count":2,"type":"core"},{"count":1,"type":"gpu"}]}]',
        ),
        (
            build.per_resource(["x"], ncores=4),
            '[{"count":4,"label":"task","type":"slot","with":[{"count":1,"type":"core"}]}]',
        ),
        (
            build.per_resource(["x"], nnodes=2, per_resource_type="core", per_resource_count=2),
            '[{"count":2,"exclusive":true,"type":"node","with":[{"count":1,"label":"task","type":"slot",'
            '"with":[{"count":1,"type":"core"}]}]}]',
        ),
        (
            build.per_resource(["x"], nnodes=2, ncores=8, gpus_per_node=1),
            '[{"count":2,"type":"node","with":[{"count":1,"label":"task","type":"slot",'
            '"with":[{"count":4,"type":"core"},{"count":1,"type":"gpu"}]}]}]',
        ),
    ],
)
def test_resources_are_as_recorded(spec: Dict[str, Any], resources: str) -> None:
    assert compact(spec["resources"]) == resources
    jobspec.validate(spec, version=1)


def test_tasks_that_do_not_divide_evenly_are_counted_in_total() -> None:
    spec = build.from_command(["x"], 5, num_nodes=4)
    assert spec["resources"][0]["with"][0]["count"] == 2
    assert spec["tasks"][0]["count"] == {"total": 5}


def test_per_resource_counts_become_the_shell_option() -> None:
    spec = build.per_resource(["x"], nnodes=2, per_resource_type="core", per_resource_count=2, name="n")
    assert jobspec.shell_option(spec, "per-resource") == {"type": "core", "count": 2}
    assert jobspec.name(spec) == "n"


def test_an_instance_gets_its_configuration_as_a_file() -> None:
    spec = build.from_nest_command(["/bin/sh"], 2, broker_opts=["-Sx=y"], conf={"queues": {}})
    assert jobspec.command(spec) == ["flux", "broker", "-c{{tmpdir}}/conf.json", "-Sx=y", "/bin/sh"]
    assert jobspec.system(spec)["files"] == {"conf.json": {"mode": 33152, "data": {"queues": {}}}}


def test_output_options() -> None:
    spec = build.from_command(["x"], output="o", error="e", label_io=True, unbuffered=True)
    assert jobspec.shell_option(spec, "output") == {
        "stdout": {"type": "file", "path": "o", "label": True, "buffer": {"type": "none"}},
        "stderr": {"type": "file", "path": "e", "label": True, "buffer": {"type": "none"}},
    }
    assert jobspec.shell_options(build.from_command(["x"], output="none", error="kvs", label_io=True)) == {}


# -- refused, in Flux's words


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: build.from_command(["a"], 1, num_nodes=2),
            ValueError,
            "node count must not be greater than task count",
        ),
        (lambda: build.from_command([]), TypeError, "command array cannot have length of zero"),
        (lambda: build.from_command("a"), TypeError, "command must be a list or tuple of strings"),
        (lambda: build.from_command(["a", 1]), TypeError, "command must be a list of strings"),  # type: ignore[list-item]
        (lambda: build.from_command(["a"], 0), ValueError, "task count must be a integer >= 1"),
        (lambda: build.from_command(["a"], cores_per_task=0), ValueError, "cores per task must be an integer >= 1"),
        (lambda: build.from_command(["a"], gpus_per_task=-1), ValueError, "gpus per task must be an integer >= 0"),
        (lambda: build.from_command(["a"], gpus_per_task=""), ValueError, "gpus per task must be an integer >= 0"),  # type: ignore[arg-type]
        (lambda: build.from_command(["a"], num_nodes=0), ValueError, "node count must be an integer >= 1 (if set)"),
        (lambda: build.from_command(["a"], exclusive=True), ValueError, "exclusive can only be set with a node count"),
        (lambda: build.from_command(["a"], duration=-1), ValueError, "duration must not be negative"),
        (lambda: build.from_command(["a"], duration="abc"), ValueError, "invalid Flux standard duration"),
        (lambda: build.per_resource(["a"]), ValueError, "must specify node or core count with per_resource"),
        (lambda: build.per_resource(["a"], 3, 2), ValueError, "number of cores must be evenly divisible by node count"),
        (lambda: build.per_resource(["a"], -4), ValueError, "ncores must be an integer >= 1"),
        (
            lambda: build.per_resource(["a"], nnodes=1, gpus_per_node=-1),
            ValueError,
            "gpus_per_node must be an integer >= 0",
        ),
        (lambda: build.per_resource(["a"], 1, 2), ValueError, "number of cores cannot be less than nnodes"),
        (
            lambda: build.per_resource(["a"], 1, gpus_per_node=1),
            ValueError,
            "gpus_per_node must be specified with a node count",
        ),
        (
            lambda: build.per_resource(["a"], 1, per_resource_type="node"),
            ValueError,
            "must specify both or neither of per_resource_type and per_resource_count",
        ),
        (
            lambda: build.from_batch_command("echo hi\n", "nb.sh"),
            ValueError,
            "nb.sh does not appear to start with '#!'",
        ),
    ],
)
def test_wrong_arguments_raise_what_flux_raises(make: Callable[[], object], kind: type, message: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        make()
    assert caught.type is kind
    assert str(caught.value) == message


# -- settings


def test_set_attribute_finds_the_place_of_every_form_of_key() -> None:
    spec = build.from_command(["x"])
    for setting in ("a.b=1", "user.c=x", ".d=2", "attributes.e=[1]", "system.f"):
        build.set_attribute(spec, *build.parse_setting(setting))
    assert spec["attributes"] == {
        "system": {"duration": 0, "a": {"b": 1}, "f": 1},
        "user": {"c": "x"},
        "d": 2,
        "e": [1],
    }


@pytest.mark.parametrize("key", ["a..b", ".", "duration.x", "user."])
def test_set_attribute_refuses_keys_that_lead_nowhere(key: str) -> None:
    with pytest.raises(ValueError, match="attribute"):
        build.set_attribute(build.from_command(["x"]), key, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [("a", 1), ("a=1", 1), ("a=x", "x"), ("a={", "{"), ("a=", ""), ('a={"b": [1]}', {"b": [1]}), ("a=b=c", "b=c")],
)
def test_parse_setting_reads_json_or_a_string(text: str, value: Any) -> None:
    assert build.parse_setting(text) == ("a", value)


def test_parse_setting_reads_a_json_file(tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    good.write_text('{"x": 1}')
    assert build.parse_setting(f"^a={good}") == ("a", {"x": 1})
    good.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        build.parse_setting(f"^a={good}")
    with pytest.raises(ValueError, match="needs the name of a JSON file"):
        build.parse_setting("^a")
    with pytest.raises(ValueError, match="a key is missing"):
        build.parse_setting("=1")


@pytest.mark.parametrize(
    ("text", "signum", "timeleft"),
    [("USR1@30s", 10, 30.0), ("SIGTERM@5m", 15, 300.0), ("12", 12, 60.0), ("@10s", 10, 10.0), ("usr2", 12, 60.0)],
)
def test_parse_signal(text: str, signum: int, timeleft: float) -> None:
    assert build.parse_signal(text) == {"signum": signum, "timeleft": timeleft}


@pytest.mark.parametrize("text", ["NOSUCH", "999", "USR1@x", "-1", "²"])
def test_parse_signal_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"signal"):
        build.parse_signal(text)


@pytest.mark.parametrize(("value", "seconds"), [(5, 5.0), ("1h", 3600.0), ("inf", 0.0), (None, 0)])
def test_duration_forms(value: Optional[Any], seconds: float) -> None:
    assert jobspec.duration(build.from_command(["x"], duration=value)) == seconds
