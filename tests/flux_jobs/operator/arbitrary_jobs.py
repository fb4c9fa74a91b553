"""Arbitrary Jobs that can become clusters, as people write them: strategies of hypothesis."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from headrace.flux_jobs.read.options import ANNOTATION

Document = dict[str, Any]

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8)
_LABELS = st.dictionaries(st.sampled_from(["a", "team", "example.org/part"]), st.sampled_from(["", "x", "y-1"]))
_CONTEXTS = {"runAsUser": [0, 1000], "runAsGroup": [0, 100], "runAsNonRoot": [False], "seccompProfile": [
    {"type": "Unconfined"}, {"type": "RuntimeDefault"}, {"type": "Localhost", "localhostProfile": "p.json"},
]}  # fmt: skip


def some(table: dict[str, Any]) -> st.SearchStrategy[Document]:
    """A mapping with any of the keys, each with a value of its strategy, or of its list."""
    made = {key: st.sampled_from(one) if isinstance(one, list) else one for key, one in table.items()}
    return st.fixed_dictionaries({}, optional=made)


def _quantities(*values: str) -> st.SearchStrategy[Document]:
    """Limits and requests that do not exceed them."""
    both = st.sampled_from(values)
    equal = both.map(lambda value: (value, value))
    pairs = st.one_of(
        st.just((None, None)), both.map(lambda value: (value, None)), equal, st.just((values[-1], values[0]))
    )
    return pairs.map(lambda pair: {"limits": pair[0], "requests": pair[1]})


@st.composite
def resources(draw: st.DrawFn) -> Document:
    found: Document = {"limits": {}, "requests": {}}
    for name, amounts in {"cpu": _quantities("500m", "1", "2"), "memory": _quantities("64Mi", "1G", "1.5Gi")}.items():
        for kind, value in draw(amounts).items():
            if value is not None:
                found[kind][name] = value
    if draw(st.booleans()):
        found["limits"]["nvidia.com/gpu"] = found["requests"]["nvidia.com/gpu"] = "1"
    return {kind: given for kind, given in found.items() if given or draw(st.booleans())}


def _variable(index: int) -> st.SearchStrategy[Document]:
    value = st.one_of(
        st.just({}), _WORDS.map(lambda text: {"value": text}), st.just({"value": "$(V0)/$(JOB_COMPLETION_INDEX)"}),
        st.just({"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
        st.just({"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}),
    )  # fmt: skip
    return value.map(lambda given: {"name": f"V{index}", **given})


@st.composite
def containers(draw: st.DrawFn, name: str, volumes: list[str]) -> Document:
    paths = draw(st.lists(st.sampled_from(["/data", "/mnt", "/dev/shm", "/tmp/a b"]), unique=True, max_size=3))
    mounts = [{"name": draw(st.sampled_from(volumes)), "mountPath": path} for path in paths if volumes]
    words = st.lists(_WORDS, max_size=3)
    return {
        "name": name,
        "image": "local/image:1",
        "command": [draw(st.sampled_from(["sh", "torchrun", "/opt/a b/run"])), *draw(words)],
        **draw(some({
            "args": words,
            "env": st.integers(0, 3).flatmap(lambda count: st.tuples(*map(_variable, range(count)))).map(list),
            "resources": resources(),
            "securityContext": some(_CONTEXTS),
            "ports": [[{"containerPort": 80}], []],
            "workingDir": ["/data"],
            "readinessProbe": [{"exec": {"command": ["true"]}}],
        })),
        **({"volumeMounts": mounts} if mounts or draw(st.booleans()) else {}),
    }  # fmt: skip


@st.composite
def _init_containers(draw: st.DrawFn, name: str, volumes: list[str]) -> Document:
    """One that ends, or a sidecar container, which alone may have a probe."""
    found = draw(containers(name, volumes))
    if draw(st.booleans()):
        return {**found, "restartPolicy": "Always"}
    return {key: value for key, value in found.items() if key != "readinessProbe"}


def _options(several: bool) -> st.SearchStrategy[Document]:
    found = some({
        "run": ["tasks", "node", "program"],
        "procsPerNode": [1, 4],
        "interactive": [False, True],
        "queuePolicy": ["fcfs", "easy"],
        "maxSize": [8, 16],
        "sharedMemory": ["none", "64Mi", "1Gi"],
        "spread": ["preferred", "required", "none"],
        "exit": ["honest", "keep"],
    })  # fmt: skip
    return found.map(lambda options: {**options, "container": "main"} if several else options)


def _term(draw: st.DrawFn) -> Document:
    return {"labelSelector": {"matchLabels": draw(_LABELS)}, "topologyKey": "kubernetes.io/hostname"}


@st.composite
def _affinities(draw: st.DrawFn) -> Document:
    weighted = [{"weight": 5, "podAffinityTerm": _term(draw)}]
    anti = draw(some({_PREFERRED: [weighted, []], _REQUIRED: [[_term(draw)]]}))
    node = {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}}
    return draw(some({"podAntiAffinity": [anti], "nodeAffinity": [node]}))


@st.composite
def jobs(draw: st.DrawFn) -> Document:
    """A Job that is no cluster yet, and that both the API server and we would take."""
    names = draw(st.permutations(["main", "logs", "proxy"]))[: draw(st.integers(1, 3))]
    if "main" not in names:
        names[0] = "main"
    volumes = draw(st.lists(st.sampled_from(["data", "scratch"]), unique=True))
    options = draw(_options(several=len(names) > 1))
    size = draw(st.integers(1, 8))
    pod: Document = {
        "restartPolicy": draw(st.sampled_from(["Never", "OnFailure"])),
        "containers": [draw(containers(name, volumes)) for name in names],
        **draw(some({
            "initContainers": st.lists(st.sampled_from(["setup", "proxy-1"]), unique=True).flatmap(
                lambda names: st.tuples(*(_init_containers(name, volumes) for name in names)).map(list)
            ),
            "subdomain": ["mine"],
            "affinity": _affinities(),
            "securityContext": some({**_CONTEXTS, "fsGroup": [10]}),
            "tolerations": [[{"operator": "Exists"}]],
        })),
        "volumes": [{"name": name, "emptyDir": {}} for name in volumes],
    }  # fmt: skip
    success = [{"rules": [{"succeededIndexes": "0"}]}, {"rules": [{"succeededCount": size}]}]
    spec = {
        "completions": size,
        "parallelism": size,
        "completionMode": "Indexed",
        "template": {"metadata": draw(some({"labels": _LABELS, "annotations": _LABELS})), "spec": pod},
        **draw(some({"backoffLimit": [0, 6], "suspend": [True, False], "successPolicy": success})),
    }
    metadata: Document = {"name": draw(st.sampled_from(["hello", "a" * 60])), **draw(some({"labels": _LABELS}))}
    if options or draw(st.booleans()):
        metadata["annotations"] = {ANNOTATION: json.dumps(options)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
