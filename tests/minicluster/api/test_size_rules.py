"""How large texts, variables and lists of hosts may be, and what a refusal names."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.minicluster.api.fields import API_VERSION, KIND, MOST_PODS, InvalidMiniCluster
from headrace.minicluster.api.plan import batch_script
from headrace.minicluster.api.size_rules import LARGEST_SPEC, LARGEST_TEXT, MOST_CLUSTERS, MOST_OUTSIDE, MOST_VALUES
from headrace.minicluster.api.validate import check

RUNNER = "spec.containers[0]"


def problems(runner: dict[str, Any], **spec: Any) -> dict[str, str]:
    one = {"image": "busybox", "command": "true", **runner}
    one = {key: value for key, value in one.items() if value is not None}
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "hello"}}
    try:
        check({**document, "spec": {"size": 2, "containers": [one, *spec.pop("others", ())], **spec}})
    except InvalidMiniCluster as exc:
        return {one.path: one.rule for one in exc.problems}
    return {}


def text(size: int) -> str:
    return (f"true {'x' * 94}\n" * (size // 100 + 1))[:size]


@pytest.mark.parametrize("field", ["init", "pre", "brokerPre", "workerPre", "post", "script"])
def test_a_text_of_the_limit_is_taken_and_a_longer_one_named_with_the_limit(field: str) -> None:
    command = {"command": None} if field == "script" else {}
    assert problems({**command, "commands": {field: text(LARGEST_TEXT)}}) == {}
    found = problems({**command, "commands": {field: text(LARGEST_TEXT + 1)}})
    assert list(found) == [f"{RUNNER}.commands.{field}"]
    assert found[f"{RUNNER}.commands.{field}"].startswith(
        f"has {LARGEST_TEXT + 1} bytes, at most {LARGEST_TEXT} fit: put a longer script"
    )


def test_texts_that_one_shell_runs_count_together_in_bytes() -> None:
    half = text(LARGEST_TEXT // 2 - 10)
    assert problems({"commands": {"pre": half, "post": half}}) == {}
    found = problems({"commands": {"pre": half, "post": half, "init": "#" + "ä" * 20}})
    assert f"{LARGEST_TEXT // 2 - 10} bytes, {2 * len(half) + 41} with the others" in found[f"{RUNNER}.commands.pre"]
    # The lead and a follower run different texts.
    assert problems({"commands": {"brokerPre": text(LARGEST_TEXT), "workerPre": text(LARGEST_TEXT)}}) == {}


def test_a_command_and_what_a_batch_makes_of_it_have_the_same_limit() -> None:
    assert list(problems({"command": "a " * (LARGEST_TEXT // 2)})) == [f"{RUNNER}.command"]
    lines = "a\n" * 1500
    assert len(batch_script(lines, raw=False)) > LARGEST_TEXT > len(lines)
    assert list(problems({"command": lines, "batch": True})) == [f"{RUNNER}.command"]
    assert problems({"command": lines, "batch": True, "batchRaw": True}) == {}
    other = {"name": "other", "image": "x", "command": text(LARGEST_TEXT + 1)}
    assert list(problems({"runFlux": True}, others=[other])) == ["spec.containers[1].command"]
    assert list(problems({}, services=[other])) == ["spec.services[0].command"]


def test_scripts_of_an_image_with_its_own_flux_are_files() -> None:
    own = {"flux": {"container": {"disable": True}}}
    assert problems({"commands": {"pre": text(LARGEST_TEXT + 1)}}, **own) == {}


def test_a_variable_has_the_limit_of_an_argument() -> None:
    assert problems({"environment": {"A": "x" * ((128 << 10) - 3)}}) == {}
    found = problems({"environment": {"A": "x" * ((128 << 10) - 2)}})
    assert found == {f"{RUNNER}.environment.A": "has 131073 bytes with its name, at most 131072 fit"}


def test_the_whole_has_a_limit_of_bytes_and_of_values() -> None:
    large = {"runFlux": True, "commands": {"pre": text(LARGEST_TEXT), "post": ""}}
    others = [{"name": f"o{n}", "image": "x", "command": text(LARGEST_TEXT)} for n in range(2)]
    assert problems(large, others=others)["spec"].endswith(f"at most {LARGEST_SPEC} fit: put large files on a volume")
    many = {f"a{number}": "x" for number in range(MOST_VALUES)}
    assert problems({}, jobLabels=many)["spec"].startswith(f"has {MOST_VALUES + 3} values, at most {MOST_VALUES} fit")


@pytest.mark.parametrize(
    ("bursting", "field"),
    [
        ({"hostlist": f"h[1-{MOST_OUTSIDE + 1}]"}, "hostlist"),
        ({"hostlist": "h[0-999999]"}, "hostlist"),
        ({"hostlist": f"{'h' * 250}[0-1000000000]"}, "hostlist"),
        ({"clusters": [{"name": f"b{n}", "size": 1} for n in range(MOST_CLUSTERS + 1)]}, "clusters"),
        ({"clusters": [{"name": "a", "size": MOST_OUTSIDE}, {"name": "b"}]}, "clusters"),
    ],
)
def test_hosts_outside_are_counted_before_they_are_listed(bursting: dict[str, Any], field: str) -> None:
    found = problems({}, flux={"bursting": bursting})
    assert list(found) == [f"spec.flux.bursting.{field}"]
    assert "more than" in found[f"spec.flux.bursting.{field}"] or "at most" in found[f"spec.flux.bursting.{field}"]


def test_all_pods_of_a_minicluster_are_no_more_than_those_of_a_job() -> None:
    groups = [{"name": "a", "size": MOST_PODS - 2}]
    assert problems({}, groups=groups) == {}
    assert list(problems({}, groups=[*groups, {"name": "b", "size": 1}])) == ["spec.groups"]
