"""`flux.job.Jobspec` and its builders; no instance is needed."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import sys

import pytest

from headrace.wire.client.installation import BINDINGS

sys.path.insert(0, BINDINGS)
from flux.job import BatchConfig, Jobspec, JobspecV1, validate_jobspec


def spec() -> JobspecV1:
    return JobspecV1.from_command(["true"], environment={})


@pytest.mark.parametrize("value", [100.5, "100.5s", datetime.timedelta(seconds=100.5)])
def test_a_duration_is_seconds_a_text_or_a_timedelta(value):
    made = spec()
    made.duration = value
    assert made.duration == 100.5


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("duration", -1, ValueError),
        ("duration", "1f", ValueError),
        ("duration", [], TypeError),
        ("queue", 12, TypeError),
        ("stdout", None, TypeError),
        ("unbuffered", 1, TypeError),
        ("environment", "A=1", ValueError),
        ("cwd", 1, ValueError),
    ],
)
def test_what_a_field_cannot_be_is_refused(field, value, error):
    with pytest.raises(error):
        setattr(spec(), field, value)


def test_streams_have_two_names_and_take_paths():
    made = spec()
    made.error = pathlib.Path("e")
    made.stdin = "i"
    assert (made.stderr, made.input, made.output) == ("e", "i", None)


def test_unbuffered_is_undone_but_for_what_was_set_by_hand():
    made = spec()
    before = made.dumps()
    made.unbuffered = True
    assert made.getattr("shell.options.output.batch-timeout") == 0.05
    made.unbuffered = False
    assert json.loads(made.dumps())["attributes"]["system"].pop("shell") == {"options": {}}
    assert json.loads(before)["tasks"] == made.tasks
    made.unbuffered = True
    made.setattr_shell_option("output.batch-timeout", 1.0)
    made.unbuffered = False
    assert made.getattr("shell.options.output.batch-timeout") == 1.0
    assert not made.unbuffered


def test_a_jobspec_prints_as_what_makes_it_and_is_checked_when_made():
    made = spec()
    assert eval(repr(made), {"JobspecV1": JobspecV1}).jobspec == made.jobspec
    assert str(made) == str(made.jobspec)
    with pytest.raises(ValueError, match="version must be 1"):
        JobspecV1(made.resources, made.tasks, made.attributes, 2)
    with pytest.raises(ValueError, match="count"):
        Jobspec([{"type": "slot", "count": 0, "label": "a"}], made.tasks, made.attributes, 1)
    with pytest.raises(ValueError, match="Missing key"):
        Jobspec.from_yaml_stream("{}")
    valid, again = validate_jobspec(made.dumps())
    assert valid
    assert isinstance(again, JobspecV1)


def test_an_environment_is_the_callers_mapping_and_text_when_sent():
    environment = {"N": 1}
    made = JobspecV1.from_batch_command("#!/bin/sh\n", "j", environment=environment)
    assert made.environment is environment
    environment["M"] = 2
    assert json.loads(made.dumps())["attributes"]["system"]["environment"] == {"N": "1", "M": "2"}
    assert JobspecV1.from_command(["a"]).environment == dict(os.environ)


def test_vertices_are_walked_parents_first():
    made = JobspecV1.from_command(["a"], num_tasks=4, num_nodes=2, gpus_per_task=1)
    assert [vertex["type"] for vertex in made] == ["node", "slot", "core", "gpu"]
    assert made.resource_counts() == {"node": 2, "slot": 4, "core": 4, "gpu": 4}


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({"nnodes": 2}, "requires ncores or exclusive"),
        ({"ncores": 2, "exclusive": True}, "with a node count"),
        ({}, "node or core count"),
        ({"nnodes": 2, "ncores": 3}, "divisible"),
    ],
)
def test_per_resource_needs_a_size_that_makes_sense(size, message):
    with pytest.raises(ValueError, match=message):
        JobspecV1.per_resource(["a"], **size)


def test_options_of_submit_are_keywords():
    made = JobspecV1.from_submit(
        ["a"],
        ntasks=2,
        time_limit="2h",
        env=["-*", "A=1", "B={{id}}"],
        shell_options={"verbose": 1},
        attributes={"system.queue": "gpu", "user.note": "n"},
        dependency="afterok:f123",
        requires=["host:x"],
        signal="TERM@10s",
    )
    assert (made.duration, made.queue, made.environment) == (7200.0, "gpu", {"A": "1"})
    options = made.getattr("shell.options")
    assert options["env-expand"] == {"B": "{{id}}"}
    assert options["signal"] == {"signum": 15, "timeleft": 10.0}
    assert (options["verbose"], "core" in options["rlimit"]) == (1, True)
    assert made.getattr("dependencies")[0]["value"] == "f123"
    assert made.getattr("user.note") == "n"
    with pytest.raises(TypeError, match="nosuch"):
        made.apply_options(nosuch=1)


def test_options_of_batch_and_alloc_are_keywords(tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("true\n")
    made = JobspecV1.from_batch(script, nodes=2, wrap=True, conf={"a": 1})
    assert made.resource_counts() == {"node": 2, "slot": 2, "core": 2}
    assert (made.resources[0]["exclusive"], made.output) == (True, "flux-{{id}}.out")
    assert made.getattr("job.name") == "job.sh"
    assert made.getattr("files")["script"]["data"] == "#!/bin/sh\ntrue\n"
    assert made.getattr("files")["conf.json"]["data"] == {"a": 1}
    with pytest.raises(TypeError):
        JobspecV1.from_batch("a", content="b")
    with pytest.raises(ValueError, match="nslots or nodes"):
        JobspecV1.from_alloc()
    assert "-Sbroker.rc2_none=1" in JobspecV1.from_alloc(nslots=1, bg=True).tasks[0]["command"]


def test_a_jobspec_may_have_any_resources_of_rfc_14_whatever_its_version(tmp_path):
    core = {"type": "core", "count": 2}
    inner = {"type": "slot", "label": "task", "count": 1, "with": [core, {"type": "gpu", "count": 0}]}
    node = {"type": "node", "count": 1, "exclusive": True, "with": [inner]}
    outer = {"type": "slot", "label": "fast", "count": 2, "with": [{"type": "ssd", "count": 1}, node]}
    for resources in ([{"type": "rack", "count": 3, "with": [outer]}], [{"type": "ssd", "count": 9}, node]):
        for version in (1, 999):
            obj = {
                "version": version,
                "resources": resources,
                "tasks": [{"command": "app", "slot": "task", "count": {"per_slot": 1}}],
                "attributes": {"system": {"duration": 60}},
            }
            path = tmp_path / "jobspec.json"
            path.write_text(json.dumps(obj))
            assert Jobspec.from_yaml_file(path).jobspec == obj
        with pytest.raises(ValueError, match="resources"):
            JobspecV1(resources, obj["tasks"], obj["attributes"])
    with pytest.raises(ValueError, match=r"resources\[0\].with\[0\].count"):
        Jobspec([{**inner, "with": [{"type": "core", "count": 0}]}], obj["tasks"], obj["attributes"], 999)
    with pytest.raises(ValueError, match="not the label of a slot"):
        Jobspec([{**inner, "label": "other"}], obj["tasks"], obj["attributes"], 1)
    whole = [{"command": ["app"], "slot": "task", "count": {"per_slot": 1}}]
    assert JobspecV1([inner], whole, obj["attributes"]).resource_counts() == {"slot": 1, "core": 2, "gpu": 0}


SCRIPT = "#!/bin/sh\ntrue\n"
BUILDERS = {
    "task": lambda **more: JobspecV1.from_command(["a"], **more),
    "per_node": lambda **more: JobspecV1.per_resource(["a"], nnodes=2, exclusive=True, **more),
    "nest": lambda **more: JobspecV1.from_nest_command(["a"], **more),
    "batch": lambda **more: JobspecV1.from_batch_command(SCRIPT, "j", **more),
    "submit": lambda **more: JobspecV1.from_submit(["a"], **more),
    "from_batch": lambda **more: JobspecV1.from_batch(content=SCRIPT, **more),
    "alloc": lambda **more: JobspecV1.from_alloc(**{"nslots": 1, **more}),
}
GPUS = {"task": "gpus_per_task", "per_node": "gpus_per_node", "submit": "gpus_per_task"}


@pytest.mark.parametrize("builder", BUILDERS)
def test_a_library_may_always_give_a_count_of_gpus(builder):
    make, gpus = BUILDERS[builder], GPUS.get(builder, "gpus_per_slot")
    bare = make(environment={}) if builder in ("task", "per_node", "nest", "batch") else make()
    for none in (0, None):
        assert make(**{gpus: none}).resources == bare.resources
    assert make(**{gpus: 3}).resource_counts()["gpu"] % 3 == 0
    for wrong in (-1, "", "1", 0.5):
        with pytest.raises(ValueError, match=r"gpus.per.*must be an integer >= 0"):
            make(**{gpus: wrong})


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("keyword", ["name", "queue", "bank", "cwd", "input", "output", "error"])
def test_none_stands_for_a_keyword_that_is_not_given_and_an_empty_text_for_itself(builder, keyword):
    make = BUILDERS[builder]
    keyword = "jobname" if (builder, keyword) == ("batch", "name") else keyword
    if keyword == "jobname":
        assert JobspecV1.from_batch_command(SCRIPT, None)._get("job.name") is None
        assert JobspecV1.from_batch_command(SCRIPT, "").getattr("job.name") == ""
        return
    assert make(**{keyword: None}).jobspec == make().jobspec
    key = "job.name" if keyword == "name" else keyword
    made = make(**{keyword: ""})
    assert getattr(made, keyword) == "" if keyword in ("cwd", "input", "output", "error") else made.getattr(key) == ""


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("value", [None, False, 0, ""])
def test_a_switch_is_off_for_all_that_is_false(builder, value):
    make = BUILDERS[builder]
    for keyword in ("label_io", "unbuffered"):
        assert make(**{keyword: value}).jobspec == make().jobspec


@pytest.mark.parametrize(
    ("builder", "size"),
    [
        ("task", {"num_tasks": 0}),
        ("task", {"num_nodes": 0}),
        ("task", {"cores_per_task": None}),
        ("per_node", {"ncores": 0}),
        ("per_node", {"per_resource_type": "", "per_resource_count": 1}),
        ("per_node", {"per_resource_type": "node", "per_resource_count": 0}),
        ("nest", {"num_slots": 0}),
        ("from_batch", {"nslots": 0, "nodes": 2}),
        ("alloc", {"nslots": 0}),
        ("alloc", {"nslots": None}),
    ],
)
def test_no_size_is_no_size(builder, size):
    with pytest.raises(ValueError):
        BUILDERS[builder](**size)


@pytest.mark.parametrize("builder", ["nest", "batch", "from_batch", "alloc"])
def test_an_empty_configuration_is_one_and_none_is_none(builder):
    make = BUILDERS[builder]
    assert make(conf=None).jobspec == make().jobspec
    for empty in (None, (), ""):
        assert make(broker_opts=empty).jobspec == make().jobspec
    made = make(conf={})
    assert made.getattr("files")["conf.json"]["data"] == {}
    assert "-c{{tmpdir}}/conf.json" in made.tasks[0]["command"]


def test_a_configuration_of_batch_is_a_mapping_a_text_or_an_assembled_one():
    config = BatchConfig().update("a.b=1")
    for conf in ({"a": {"b": 1}}, "a.b=1", config):
        assert JobspecV1.from_batch(content=SCRIPT, conf=conf).getattr("files")["conf.json"]["data"] == {"a": {"b": 1}}


@pytest.mark.parametrize("value", [0, 0.0, "0", "0s", None])
def test_a_time_limit_of_zero_is_none(value):
    assert JobspecV1.from_submit(["a"], time_limit=value).duration == 0
    assert JobspecV1.from_command(["a"], duration="0s" if value == "0" else value).duration == 0
