"""The definition that the API server gets: the recorded fields, and bounds that validation knows too."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.minicluster.api import fields
from headrace.minicluster.api.declarations import Support, fields_of
from headrace.minicluster.operator.crd import definition
from minicluster.api.specs import problems

RECORDED = Path(__file__).parents[2] / "data/minicluster/schema-fields.tsv"
ADDED_STATUS = (
    *("phase", "reason", "ready", "brokersUp", "jobs", "exitCode", "times", "observedGeneration"),
    *("podFailures", "restartAt", "demandNodes", "idleSince"),
)


def version() -> dict[str, Any]:
    (only,) = definition()["spec"]["versions"]
    return dict(only)


def kind_of(schema: dict[str, Any]) -> str:
    """A schema's type as the recording writes it."""
    if schema.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    if schema["type"] == "array":
        return f"array<{kind_of(schema['items'])}>"
    if "additionalProperties" in schema:
        return f"map<{kind_of(schema['additionalProperties'])}>"
    return ":".join([schema["type"], *([schema["format"]] if "format" in schema else [])])


def walk(schema: dict[str, Any], path: str, required: bool) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Path, schema and "is required" of each field; `[]` is an item of a list, `{}` the value of a map."""
    yield path, schema, required
    inner, below = schema, path
    while "items" in inner or "additionalProperties" in inner:
        listed = "items" in inner
        inner = inner["items" if listed else "additionalProperties"]
        below += "[]" if listed else "{}"
    for name, one in inner.get("properties", {}).items():
        yield from walk(one, f"{below}.{name}".lstrip("."), name in inner.get("required", ()))


def declared() -> dict[str, tuple[dict[str, Any], bool]]:
    schema = version()["schema"]["openAPIV3Schema"]
    return {path: (one, required) for path, one, required in walk(schema, "", False)}


def recorded() -> list[dict[str, str]]:
    with RECORDED.open(encoding="utf-8") as handle:
        return list(csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("row", [pytest.param(row, id=row["path"]) for row in recorded()])
def test_each_recorded_field_has_its_type_default_and_requirement(row: dict[str, str]) -> None:
    path = row["path"]
    if path.endswith("{}"):
        schema, required = dict(declared()[path[:-2]][0]["additionalProperties"]), False
    else:
        schema, required = declared()[path]
    assert kind_of(schema) == row["type"]
    assert (json.dumps(schema["default"]) if "default" in schema else "") == row["default"]
    assert ("yes" if required else "") == row["required"]
    if row["enum"]:
        assert schema["enum"] == row["enum"].split(",")
    for word in row["constraints"].split(" "):
        name, _, value = word.partition("=")
        key = {"list-type": "x-kubernetes-list-type"}.get(name, name)
        assert not name or str(schema[key]) == value


def test_only_the_added_fields_are_not_recorded() -> None:
    known = {row["path"] for row in recorded()}
    more = {path for path in declared() if path and path not in known}
    # Where a record other than Spec gets a field of ours, its paths in the schema are needed here.
    ours = [f"spec.{one.name}" for one in fields_of(fields.Spec).values() if one.is_marked(Support.ADDED)]
    allowed = (*ours, *(f"status.{name}" for name in ADDED_STATUS))
    assert sorted(path for path in more if not path.startswith(allowed)) == []
    assert all(path in more for path in allowed)


def test_every_field_has_a_text() -> None:
    assert [
        path for path, (schema, _) in declared().items() if path.startswith("spec.") and not schema["description"]
    ] == []


def test_the_kind_is_short_and_scales() -> None:
    assert definition()["spec"]["names"]["shortNames"] == ["mc"]
    scale = version()["subresources"]["scale"]
    assert scale == {
        "specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.size",
        "labelSelectorPath": ".status.selector",
    }
    assert [one["name"] for one in version()["additionalPrinterColumns"]][:3] == ["Phase", "Ready", "Size"]


def out_of_bounds() -> Iterator[Any]:
    """Each bounded field of `spec`, with values that its schema refuses."""
    for path, (schema, _) in declared().items():
        if not path.startswith("spec."):
            continue
        if "minimum" in schema:
            yield pytest.param(path, schema["minimum"] - 1, id=f"{path} below")
        if "maximum" in schema:
            yield pytest.param(path, schema["maximum"] + 1, id=f"{path} above")
        if "enum" in schema:
            yield pytest.param(path, "wrong", id=f"{path} not of the set")
        if "maxLength" in schema:
            yield pytest.param(path, "a" * (schema["maxLength"] + 1), id=f"{path} too long")
        for item in (schema.get("items", {}),):
            if "minimum" in item:
                yield pytest.param(f"{path}[]", item["minimum"] - 1, id=f"{path}[] below")


# What an object of these needs beside the field in question.
NEEDED: dict[str, dict[str, Any]] = {
    "containers": {"name": "d", "command": "x"},
    "services": {"name": "d"},
    "groups": {"name": "d"},
    "leadBroker": {"address": "a", "name": "a", "size": 1},
    "rules": {"action": "Ignore", "onPodConditions": [{"type": "Ready"}]},
    "onPodConditions": {"type": "Ready"},
    "onExitCodes": {"operator": "In", "values": [1]},
    "tolerations": {"key": "a"},
}


def document_with(path: str, value: Any) -> dict[str, Any]:
    """A specification that is right but for the field at `path`."""
    root: dict[str, Any] = {}
    here: Any = root
    words = path.split(".")[1:]
    for index, word in enumerate(words):
        name = re.sub(r"[\[\]{}]", "", word)
        last = index == len(words) - 1
        below: Any = value if last else dict(NEEDED.get(name, {}))
        here[name] = [below] if word.endswith("[]") else {"k": below} if word.endswith("{}") else below
        if name == "rules" and words[-1] != "action" and "onExitCodes" in words:
            del below["onPodConditions"]
        here = below
    return root


@pytest.mark.parametrize(("path", "value"), list(out_of_bounds()))
def test_what_the_schema_refuses_validation_refuses_at_the_same_field(path: str, value: Any) -> None:
    found = problems(document_with(path, value))
    plain = re.compile(re.escape(path).replace(r"\[\]", r"\[0\]").replace(r"\{\}", r"\.k"))
    assert any(plain.match(one) for one in found), found
