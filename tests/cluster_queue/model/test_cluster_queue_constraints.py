from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.cluster_queue.model import constraints, nodes, resources
from headrace.formats.spec import constraint as rfc31

LABELS = {"zone": "a", "size": "5", "empty": "", "odd": "1_0", "large": "9" * 30}


def node(taints: Any = (), **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "labels": labels}, "spec": {"taints": list(taints)}}


def may(spec: dict[str, Any], item: dict[str, Any]) -> bool:
    """Whether the constraint of a pod lets it have a node."""
    constraint = constraints.constraint_of(spec)
    if constraint is None:
        return True
    names = [value.lstrip("^") for kind, value in rfc31.terms(constraint) if kind == "properties"]
    tests = [name for name in names if constraints.is_test(name)]
    return rfc31.match(constraint, 0, item["metadata"]["name"], nodes.properties_of(item, tests))


def affinity(*terms: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def rule(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        (rule("zone", "In", "a"), True),
        (rule("zone", "In", "b", "a"), True),
        (rule("zone", "In", "b"), False),
        (rule("rack", "In", "a"), False),
        (rule("empty", "In", ""), True),
        (rule("zone", "NotIn", "a", "b"), False),
        (rule("zone", "NotIn", "b"), True),
        (rule("rack", "NotIn", "a"), True),
        (rule("zone", "Exists"), True),
        (rule("rack", "Exists"), False),
        (rule("zone", "DoesNotExist"), False),
        (rule("rack", "DoesNotExist"), True),
        (rule("size", "Gt", "4"), True),
        (rule("size", "Gt", "5"), False),
        (rule("size", "Lt", "6"), True),
        (rule("size", "Lt", "5"), False),
        (rule("zone", "Gt", "1"), False),
        (rule("rack", "Lt", "1"), False),
        (rule("size", "Gt", "many"), False),
        (rule("size", "Lt", "1_0"), False),
        (rule("odd", "Lt", "11"), False),
        (rule("large", "Gt", "1"), False),
        (rule("size", "Lt", "9" * 30), False),
        (rule("size", "Unknown"), False),
    ],
)
def test_each_operator_of_a_required_node_affinity(expression, holds):
    assert may(affinity({"matchExpressions": [expression]}), node(**LABELS)) is holds


def test_terms_are_alternatives_of_rules_that_all_hold_beside_the_node_selector():
    good, bad = rule("zone", "In", "a"), rule("zone", "In", "b")
    item = node(**LABELS)
    assert may(affinity({"matchExpressions": [bad]}, {"matchExpressions": [good]}), item)
    assert not may(affinity({"matchExpressions": [bad, good]}), item)
    assert not may({**affinity({"matchExpressions": [good]}), "nodeSelector": {"size": "4"}}, item)
    assert may({**affinity({"matchExpressions": [good]}), "nodeSelector": {"size": "5"}}, item)


def test_a_term_without_rules_selects_nothing():
    assert not may(affinity({}), node(**LABELS))
    assert not may(affinity(), node(**LABELS))
    assert may(affinity({}, {"matchExpressions": [rule("zone", "Exists")]}), node(**LABELS))


def test_the_name_of_a_node_is_a_field():
    assert may(affinity({"matchFields": [rule("metadata.name", "In", "n1")]}), node())
    assert not may(affinity({"matchFields": [rule("metadata.name", "In", "n2")]}), node())
    assert not may(affinity({"matchFields": [rule("metadata.name", "NotIn", "n1")]}), node())
    assert may(affinity({"matchFields": [rule("metadata.name", "NotIn", "n2")]}), node())


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (affinity({"matchExpressions": [rule("gen>x", "In", "y")]}), "spec.affinity.nodeAffinity.gen>x: its name must"),
        (affinity({"matchExpressions": [rule("gen>5", "Exists")]}), "spec.affinity.nodeAffinity.gen>5: its name must"),
        (affinity({"matchExpressions": [rule("gen", "In", "a|b")]}), "spec.affinity.nodeAffinity.gen: must be up"),
        (affinity({"matchExpressions": [rule("gen", "Gt", "1" * 5000)]}), "spec.affinity.nodeAffinity.gen: must be up"),
        (
            affinity({"matchFields": [rule("metadata.name", "In", "a[0-3", "b]")]}),
            "spec.affinity.nodeAffinity: metadata.name: must be the name of a node, not 'a[0-3'",
        ),
        ({"nodeSelector": {"a^": "b"}}, "spec.nodeSelector.a^: its name must"),
        ({"nodeSelector": {"a": ">5"}}, "spec.nodeSelector.a: must be up to 63"),
        ({"tolerations": [{"key": "a'b", "operator": "Exists"}]}, "spec.tolerations.a'b: its name must"),
        ({"tolerations": [{"key": "a", "value": "b,c"}]}, "spec.tolerations.a: must be up to 63"),
    ],
)
def test_what_the_api_server_takes_of_no_pod_is_refused_by_name(spec, why):
    with pytest.raises(resources.Malformed) as caught:
        constraints.constraint_of(spec)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize("name", ["gen>x", "gen=>5", "a<b>1", "size>" + "9" * 5000])
def test_a_property_with_a_sign_in_it_is_no_test_unless_a_number_follows(name):
    assert not constraints.is_test(name)
    assert constraints.is_test("gen>5") and constraints.is_test("gen<-5")


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, str]:
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def tolerated(toleration: dict[str, str], one: dict[str, str]) -> bool:
    """Kubernetes 1.34, "Taints and Tolerations", in its own words."""
    if toleration.get("effect") and toleration["effect"] != one["effect"]:
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key", "") in ("", one["key"])
    return toleration.get("key") == one["key"] and toleration.get("value", "") == one.get("value", "")


@pytest.mark.parametrize("seed", range(200))
def test_pods_have_nodes_all_whose_taints_they_tolerate(seed):
    rng = random.Random(seed)

    def effect() -> str:
        return rng.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))

    taints = [taint(rng.choice("ab"), rng.choice(("", "x", "y")), effect()) for _ in range(rng.randint(0, 3))]
    tolerations = []
    for _ in range(rng.randint(0, 3)):
        one = {"key": rng.choice("ab"), **({"effect": effect()} if rng.random() < 0.5 else {})}
        if rng.random() < 0.5:
            one["operator"] = "Exists"
            if rng.random() < 0.3:
                del one["key"]
        else:
            one["value"] = rng.choice(("", "x", "y"))
        tolerations.append(one)
    repelling = [one for one in taints if one["effect"] != "PreferNoSchedule"]
    expected = all(any(tolerated(one, other) for one in tolerations) for other in repelling)
    assert may({"tolerations": tolerations}, node(taints)) is expected, (taints, tolerations)


def test_taints_that_tell_a_nodes_state_are_left_to_its_readiness_and_cordon():
    assert may({}, node([taint("node.kubernetes.io/not-ready"), taint("node.kubernetes.io/unschedulable")]))
    assert not may({}, node([taint("node.kubernetes.io/disk-pressure")]))
    # Every pod tolerates these, by admission, and no pod is another shape of request for it.
    by_admission = [{"key": f"node.kubernetes.io/{key}", "operator": "Exists"} for key in ("not-ready", "unreachable")]
    assert constraints.constraint_of({"tolerations": by_admission}) == constraints.constraint_of({})
    assert constraints.constraint_of({"nodeSelector": {}}, with_taints=False) is None


def anti(selector: Any, key: str = "kubernetes.io/hostname", **more: Any) -> dict[str, Any]:
    term = {"labelSelector": selector, "topologyKey": key, **more}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


@pytest.mark.parametrize(
    ("spec", "apart"),
    [
        (anti({"matchLabels": {"app": "a"}}), True),
        (anti({"matchLabels": {"app": "b"}}), False),
        (anti({}), True),
        (anti(None), False),
        (anti({"matchLabels": {"app": "a"}}, "topology.kubernetes.io/zone"), False),
        (anti({"matchLabels": {"app": "a"}}, namespaces=["other"]), False),
        (anti({"matchLabels": {"app": "a"}}, namespaces=["other", "own"]), True),
        (anti({"matchLabels": {"app": "b"}}, namespaces=["own"]), False),
        (anti({}, namespaceSelector={}), True),
        (anti({}, namespaceSelector={}, namespaces=["other"]), True),
        (anti({}, namespaceSelector={"matchLabels": {"team": "a"}}), False),
        (anti({}, namespaceSelector={"matchLabels": {"team": "a"}}, namespaces=["own"]), True),
        (anti({}, namespaceSelector={"matchExpressions": [{"key": "team", "operator": "Exists"}]}), False),
        (anti({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}), True),
        (anti({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}), False),
        (anti({"matchExpressions": [{"key": "job", "operator": "DoesNotExist"}]}), True),
        ({}, False),
    ],
)
def test_pods_that_keep_away_from_each_other_by_host_name_are_apart(spec, apart):
    assert constraints.is_apart(spec, "own", {"app": "a"}) is apart
    others = ["spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"]
    assert list(constraints.left_to_scheduler(spec, "own", {"app": "a"})) == (others if spec and not apart else [])


def test_what_is_left_to_kube_scheduler_is_named():
    demand = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    spec = {
        "affinity": {"nodeAffinity": demand, "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}},
        "topologySpreadConstraints": [{"maxSkew": 1}],
    }
    assert list(constraints.left_to_scheduler(spec, "own", {})) == [
        "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        "spec.topologySpreadConstraints",
    ]


def test_constraints_of_several_pods_hold_together():
    one, other = {"properties": ["a"]}, {"properties": ["b"]}
    assert constraints.together([None, one, one]) == one
    assert constraints.together([one, other]) == {"and": [one, other]}
    assert constraints.together([None]) is None
