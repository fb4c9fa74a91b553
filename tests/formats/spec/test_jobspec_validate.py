"""Checking jobspecs against RFC 14 and RFC 25."""

import copy
from typing import Any, Callable, Dict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.spec import jobspec_build
from headrace.formats.spec.jobspec_validate import JobspecError, validate, validate_canonical

V1: Dict[str, Any] = {
    "resources": [
        {
            "type": "node",
            "count": 2,
            "exclusive": True,
            "with": [
                {
                    "type": "slot",
                    "count": 1,
                    "label": "task",
                    "with": [{"type": "core", "count": 1}, {"type": "gpu", "count": 1}],
                }
            ],
        }
    ],
    "tasks": [{"command": ["app"], "slot": "task", "count": {"per_slot": 1}}],
    "attributes": {
        "system": {
            "duration": 3600.0,
            "cwd": "/home/flux",
            "environment": {"HOME": "/home/flux", "GONE": None},
            "queue": "batch",
            "job": {"name": "x"},
            "dependencies": [{"scheme": "afterok", "value": "f1"}],
            "constraints": {"properties": ["fast"]},
            "shell": {"options": {"verbose": 1}},
            "unheard-of": [1],
        },
        "user": {"anything": 1},
    },
    "version": 1,
}


def changed(change: Callable[[Dict[str, Any]], object], base: Dict[str, Any] = V1) -> Dict[str, Any]:
    spec = copy.deepcopy(base)
    change(spec)
    return spec


def system(spec: Dict[str, Any]) -> Dict[str, Any]:
    found: Dict[str, Any] = spec["attributes"]["system"]
    return found


def test_a_version_1_jobspec_is_accepted() -> None:
    validate(V1)
    validate(V1, version=1)
    validate(jobspec_build.from_command(["true"]))


def test_another_version_than_required_is_refused() -> None:
    spec = changed(lambda s: s.update(version=2))
    validate(spec)
    with pytest.raises(JobspecError, match="version: expected version 1, got 2"):
        validate(spec, version=1)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (["attributes", "resources", "tasks", "version"], "Missing key (attributes)"),
        (["resources"], "Missing key (resources)"),
        (["tasks"], "Missing key (tasks)"),
        (["version"], "Missing key (version)"),
    ],
)
def test_missing_keys_are_said_as_flux_says_them(missing: list, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(JobspecError) as caught:
        validate({key: value for key, value in V1.items() if key not in missing})
    assert str(caught.value) == message


NODE = "resources[0]"
SLOT = "resources[0].with[0]"


def node(spec: Dict[str, Any]) -> Dict[str, Any]:
    found: Dict[str, Any] = spec["resources"][0]
    return found


def slot(spec: Dict[str, Any]) -> Dict[str, Any]:
    found: Dict[str, Any] = node(spec)["with"][0]
    return found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(extra=1), "extra: unknown key"),
        (lambda s: s.update(version="1"), "version: must be a positive integer"),
        (lambda s: s.update(version=True), "version: must be a positive integer"),
        (lambda s: s.update(resources=[]), "resources: must be an array of one node or slot"),
        (lambda s: s.update(resources={}), "resources: must be an array of one node or slot"),
        (lambda s: s["resources"].append(s["resources"][0]), "resources: must be an array of one"),
        (lambda s: s.update(resources=[3]), f"{NODE}: must be an object"),
        (lambda s: node(s).update(count=0), f"{NODE}.count: must be an integer of 1 or more in version 1, not 0"),
        (lambda s: node(s).update(count="2-3"), f"{NODE}.count: must be an integer"),
        (lambda s: node(s).update(count=True), f"{NODE}.count: must be an integer"),
        (lambda s: node(s).update(type="rack"), f"{NODE}.type: must be node or slot"),
        (lambda s: node(s).update(exclusive=1), f"{NODE}.exclusive: must be true or false"),
        (lambda s: node(s).update(color="red"), f"{NODE}.color: unknown key"),
        (lambda s: node(s).update({"with": []}), f"{NODE}.with: must be an array of one slot"),
        (lambda s: slot(s).update(type="core"), f"{SLOT}.type: must be slot"),
        (lambda s: slot(s).pop("label"), f"{SLOT}.label: a slot must have a label"),
        (lambda s: slot(s).update({"with": []}), f"{SLOT}.with: must be an array with a core"),
        (lambda s: slot(s)["with"].pop(0), f"{SLOT}.with: has no core"),
        (lambda s: slot(s)["with"][1].update(count=-1), f"{SLOT}.with[1].count: must be an integer"),
        (lambda s: slot(s)["with"][1].update(type="core"), f"{SLOT}.with[1].type: a version 1 slot has one core"),
        (lambda s: slot(s)["with"][1].update(type=3), f"{SLOT}.with[1].type: must be node"),
        (lambda s: slot(s)["with"][0].update({"with": []}), f"{SLOT}.with[0].with: a core has nothing below"),
        (lambda s: s.update(tasks=[]), "tasks: must be an array of one task"),
        (lambda s: s.update(tasks=[1]), "tasks[0]: must be an object"),
        (lambda s: s["tasks"][0].update(command=[]), "tasks[0].command: must be an array of a program"),
        (lambda s: s["tasks"][0].update(command="true"), "tasks[0].command: must be an array of a program"),
        (lambda s: s["tasks"][0].update(command=["a", 1]), "tasks[0].command[1]: must be a string"),
        (lambda s: s["tasks"][0].pop("slot"), "tasks[0].slot: must be the label of a slot"),
        (lambda s: s["tasks"][0].update(count={"per_slot": 2}), "tasks[0].count.per_slot: must be 1"),
        (lambda s: s["tasks"][0].update(count={"total": 0}), "tasks[0].count.total: must be an integer of 1"),
        (lambda s: s["tasks"][0].update(count={"many": 1}), "tasks[0].count.many: unknown key"),
        (lambda s: s["tasks"][0].update(count={}), "tasks[0].count: must be an object with one of"),
        (
            lambda s: s["tasks"][0].update(count={"per_resource": {"type": "core", "count": 1}}),
            "tasks[0].count.per_resource: not in version 1",
        ),
        (lambda s: s["tasks"][0].update(color=1), "tasks[0].color: unknown key"),
        (lambda s: s["tasks"][0].update(attributes=1), "tasks[0].attributes: must be an object"),
        (lambda s: s["tasks"][0].update(distribution=1), "tasks[0].distribution: must be a string"),
        (lambda s: s.update(attributes=None), "attributes: must be an object"),
        (lambda s: s["attributes"].update(user=1), "attributes.user: must be an object"),
        (lambda s: s["attributes"].pop("system"), "attributes.system: must be an object"),
        (lambda s: system(s).pop("duration"), "attributes.system.duration: missing"),
        (lambda s: system(s).update(duration=-1), "attributes.system.duration: must be a number of seconds"),
        (lambda s: system(s).update(duration=float("nan")), "attributes.system.duration: must be a number"),
        (lambda s: system(s).update(duration="1h"), "attributes.system.duration: must be a number"),
        (lambda s: system(s).update(environment=[]), "attributes.system.environment: must be an object"),
        (lambda s: system(s)["environment"].update(A=1), "attributes.system.environment.A: must be a string"),
        (lambda s: system(s).update(cwd=1), "attributes.system.cwd: must be a string"),
        (lambda s: system(s).update(queue=None), "attributes.system.queue: must be a string"),
        (lambda s: system(s).update(queue="q" * 256), "attributes.system.queue: must have 255 bytes at most, not 256"),
        (
            lambda s: system(s).update(bank=1),
            "attributes.system.bank: must be a string, not a number (unable to unpack bank arg)",
        ),
        (lambda s: system(s).update(bank="b" * 256), "attributes.system.bank: must have 255 bytes at most"),
        (lambda s: system(s).update(project="p" * 256), "attributes.system.project: must have 255 bytes at most"),
        (lambda s: system(s).update(job={"name": "é" * 128}), "attributes.system.job.name: must have 255 bytes at"),
        (lambda s: system(s).update(cwd="/" * 4096), "attributes.system.cwd: must have 4095 bytes at most, not 4096"),
        (
            lambda s: system(s).update(dependencies=[{"scheme": "x" * 256, "value": "1"}]),
            "attributes.system.dependencies[0].scheme: must have 255 bytes",
        ),
        (
            lambda s: system(s).update(dependencies=[{"scheme": "x", "value": "1" * 4096}]),
            "attributes.system.dependencies[0].value: must have 4095 bytes",
        ),
        (lambda s: system(s).update(job={"name": 1}), "attributes.system.job.name: must be a string"),
        (lambda s: system(s).update(dependencies={}), "attributes.system.dependencies: must be an array"),
        (lambda s: system(s).update(dependencies=[{"scheme": "a"}]), "attributes.system.dependencies[0]: missing"),
        (lambda s: system(s).update(constraints={"x": []}), "attributes.system.constraints: constraint: unknown"),
        (lambda s: system(s).update(shell={"options": 1}), "attributes.system.shell.options: must be an object"),
    ],
)
def test_version_1_errors_name_the_field(change: Callable[[Dict[str, Any]], object], message: str) -> None:
    with pytest.raises(JobspecError) as caught:
        validate(changed(change))
    assert message in str(caught.value)


def test_names_and_paths_may_have_as_many_bytes_as_a_file_system_takes() -> None:
    names = {"queue": "q" * 255, "bank": "é" * 127, "job": {"name": "n" * 255}, "cwd": "/" * 4095}
    validate(changed(lambda s: system(s).update(names)))


def test_the_only_slot_of_version_1_need_not_be_named_right_by_the_task() -> None:
    validate(changed(lambda spec: spec["tasks"][0].update(slot="other")))


RFC14: Dict[str, Any] = {
    "version": 999,
    "resources": [
        {
            "type": "cluster",
            "count": 1,
            "with": [
                {
                    "type": "slot",
                    "count": 2,
                    "label": "ib",
                    "with": [
                        {
                            "type": "node",
                            "count": {"min": 1, "max": 8, "operator": "*", "operand": 2},
                            "with": [{"type": "memory", "count": 4, "unit": "GB"}, {"type": "ib10g", "count": 1}],
                        }
                    ],
                }
            ],
        },
        {
            "type": "switch",
            "count": {"min": 1},
            "with": [{"type": "slot", "count": 2, "label": "bicore", "with": [{"type": "core", "count": 2}]}],
        },
    ],
    "tasks": [
        {"command": ["app"], "slot": "ib", "count": {"per_slot": 2}, "distribution": "block"},
        {
            "command": ["db"],
            "slot": "bicore",
            "count": {"per_resource": {"type": "core", "count": 2}},
            "attributes": {"environment": {"FOO": None, "BAR": "2"}},
        },
    ],
    "attributes": {"system": {"duration": 14400.0}},
}


def test_a_canonical_jobspec_is_accepted() -> None:
    validate(RFC14)
    validate(changed(lambda s: s.update(attributes=None), RFC14))
    validate(changed(lambda s: node(s).update(count="4,9,16,25", id="3"), RFC14))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(resources=[]), "resources: must be an array of at least one"),
        (lambda s: node(s).pop("count"), f"{NODE}.count: missing"),
        (lambda s: node(s).update(count=None), f"{NODE}.count: must be an integer, a range string or a range object"),
        (lambda s: node(s).update(count={"max": 3}), f"{NODE}.count.min: missing"),
        (lambda s: node(s).update(count={"min": 3, "max": 2}), f"{NODE}.count.max: must not be less than min"),
        (lambda s: node(s).update(count={"min": 1, "operator": "-"}), f"{NODE}.count.operator: must be +"),
        (lambda s: node(s).update(count={"min": 1, "step": 1}), f"{NODE}.count.step: unknown key"),
        (lambda s: node(s).update(count={"min": 0}), f"{NODE}.count.min: must be an integer of 1"),
        (lambda s: node(s).update(count="x"), f"{NODE}.count: "),
        (lambda s: node(s).update(count="0-3"), f"{NODE}.count: must be 1 or more"),
        (lambda s: node(s).update(type=""), f"{NODE}.type: must be the name"),
        (lambda s: node(s).update({"with": {}}), f"{NODE}.with: must be an array"),
        (lambda s: node(s).update(label="ib"), f"{SLOT}.label: 'ib' is already the label of {NODE}"),
        (lambda s: slot(s).pop("label"), f"{SLOT}.label: a slot must have a label"),
        (lambda s: slot(s).pop("with"), f"{SLOT}.with: a slot must have at least one"),
        (lambda s: s["tasks"][1].update(slot="x"), "tasks[1].slot: 'x' is not the label of a slot; labels are: bicore"),
        (lambda s: s["tasks"][1].update(slot="ib"), "tasks[1].count.per_resource.type: slot 'ib' has no 'core'"),
        (lambda s: s.update(tasks=[]), "tasks: must be an array of at least one"),
        (
            lambda s: s["tasks"][1].update(count={"per_resource": 3}),
            "tasks[1].count.per_resource: must be an object {type, count}",
        ),
    ],
)
def test_canonical_errors_name_the_field(change: Callable[[Dict[str, Any]], object], message: str) -> None:
    with pytest.raises(JobspecError) as caught:
        validate(changed(change, RFC14))
    assert message in str(caught.value)


def test_deep_nesting_is_refused_not_a_crash() -> None:
    vertex: Dict[str, Any] = {"type": "core", "count": 1}
    for _ in range(3000):
        vertex = {"type": "rack", "count": 1, "with": [vertex]}
    with pytest.raises(JobspecError, match="nested deeper"):
        validate({**RFC14, "resources": [vertex]})


_value = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "slot", "core", "task", "1-2"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "count", "with", "label", "min", "command", "slot", "x"]), inner, max_size=3
        )
    ),
    max_leaves=4,
)


def _paths(obj: Any, path: tuple = ()) -> list:  # type: ignore[type-arg]
    found = [path] if path else []
    items = obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list) else ()
    for key, value in items:
        found.extend(_paths(value, (*path, key)))
    return found


@given(st.data())
@settings(max_examples=150)
def test_a_jobspec_with_any_field_replaced_is_valid_or_a_jobspec_error(data: st.DataObject) -> None:
    spec = copy.deepcopy(data.draw(st.sampled_from([V1, RFC14])))
    *way, last = data.draw(st.sampled_from(_paths(spec)))
    target = spec
    for key in way:
        target = target[key]
    target[last] = data.draw(_value)
    try:
        validate(spec)
    except JobspecError as exc:
        assert str(exc)


def test_parts_that_are_those_of_a_valid_jobspec_are_not_looked_at_again() -> None:
    known = copy.deepcopy(V1)
    # Wrong in itself, and yet the very object that was found valid.
    known["attributes"] = {"system": "wrong"}
    same = {**known, "tasks": copy.deepcopy(V1["tasks"])}
    validate(same, 1, known)
    with pytest.raises(JobspecError, match=r"attributes\.system: must be an object"):
        validate({**same, "attributes": {"system": "wrong"}}, 1, known)
    with pytest.raises(JobspecError, match="expected version 1, got 2"):
        validate({**same, "version": 2}, 1, known)
    with pytest.raises(JobspecError, match=r"attributes\.system: must be an object"):
        validate(same, 1, {**known, "version": 2})
    with pytest.raises(JobspecError, match=r"tasks\[0\]\.command"):
        validate({**same, "tasks": [{}]}, 1, known)


def test_a_gpu_count_of_zero_is_accepted_and_no_other() -> None:
    def slot(spec: Dict[str, Any]) -> Any:
        return spec["resources"][0]["with"][0]["with"]

    validate(changed(lambda s: slot(s)[1].update(count=0)))
    validate(changed(lambda s: (slot(s)[1].update(count=0), s.update(version=2))))
    for version in (1, 2):
        for wrong in (lambda s: slot(s)[0].update(count=0), lambda s: slot(s)[1].update(count=False)):
            spec = changed(wrong)
            spec["version"] = version
            with pytest.raises(JobspecError, match="count"):
                validate(spec)


def test_version_1_may_be_checked_as_canonical() -> None:
    spec = changed(lambda s: s["resources"].append({"type": "ssd", "count": 1}))
    spec["tasks"][0]["command"] = "app"
    with pytest.raises(JobspecError, match="resources"):
        validate(spec)
    validate_canonical(spec)
    assert spec["tasks"][0]["command"] == "app"
    with pytest.raises(JobspecError, match="Missing key"):
        validate_canonical({})
