"""Reads a Job (batch/v1) as a cluster: its pods are the hosts, index 0 is the lead. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from headrace.formats.spec.idset import Idset, IdsetError
from headrace.k8s.objects.problems import LABEL, LABEL_RULE
from headrace.minicluster.api.fields import MOST_PODS, QUEUE_POLICIES
from headrace.minicluster.api.pod_plan import BROKER_PORT, CHANNEL_PORT

from .cluster import (
    INDEX_ANNOTATION,
    INDEX_VARIABLE,
    OUR_CONTAINER,
    OUR_MOUNTS,
    OUR_VOLUMES,
    PROCS_VARIABLE,
    ForeignCluster,
    Part,
    Source,
    Variable,
)
from .field import Field, kind_of
from .options import ANNOTATION, MOST_PROCS, Options, Run, read_options

API_VERSION = "batch/v1"
KIND = "Job"
_POLICY_VARIABLE = "FLUX_QUEUE_POLICY"
_NODE = "node"
_SHELLS = ("sh", "bash", "dash", "ash")
# PyTorch's launcher as a word in a shell script.
_LAUNCHER = re.compile(r"(?<![\w./-])((\S*/)?torchrun|-m\s+torch\.distributed\.run)(?![\w./-])")
_MOST_NAME = 63
# Placeholder for the characters that the API server appends to generateName.
_GENERATED = "*" * 5
# The prefix of the variables that tell a pod its place, and the fields from which a pod may take its index.
_OUR_VARIABLES = "HEADRACE_POD_"
_INDEX_FIELDS = tuple(f"metadata.{kind}['{INDEX_ANNOTATION}']" for kind in ("annotations", "labels"))
# The sources of variables (core/v1 EnvVarSource), each with the fields of its reference.
_SOURCES = {
    "fieldRef": ("fieldPath",),
    "resourceFieldRef": ("containerName", "resource"),
    "configMapKeyRef": ("name", "key"),
    "secretKeyRef": ("name", "key"),
    "fileKeyRef": ("volumeName", "path", "key"),
}


class Owner(NamedTuple):
    """The object that the user created and to which the Job belongs."""

    kind: str
    name: str
    namespace: str
    procs: int | None = None
    """Processes on each node, if the owner defines them."""
    others: tuple[str, ...] = ()
    subdomain: str = ""
    """The subdomain that the owner sets in its pods."""


def read(document: Any, owner: Owner | None = None, at: Field | None = None) -> ForeignCluster:
    """The cluster of a Job's document. Raises InvalidForeign with all problems.

    For a Job that an `owner` creates, `at` is the place of its template in the owner's document. Problems that were
    noted there before are raised as well.
    """
    job = Field(document, at.path if at else "", at.problems if at else None)
    if owner is None:
        check_head(job, API_VERSION, KIND)
    metadata, spec = job["metadata"], job["spec"]
    # An owner's reader checks the parts of the name in the owner's document.
    name = metadata["name"].text() if owner else read_name(metadata)
    annotation = metadata["annotations"][ANNOTATION]
    options = read_options(annotation)
    size = _size(spec)
    most = options.max_size or size
    if most < size:
        annotation.below("maxSize").refuse(f"must be at least {size} (parallelism), not {most}")
    if owner:
        _check_length(Field(None, "metadata.name", job.problems), name, max(size, most))
    elif metadata["name"].value:
        _check_length(metadata["name"], name, max(size, most))
    else:
        # The API server appends five characters, and truncates the name to 58 characters before.
        generated = metadata["generateName"].text()[: _MOST_NAME - len(_GENERATED)] + _GENERATED
        _check_length(metadata["generateName"], generated, max(size, most))
    _check_success_policy(spec["successPolicy"], size)
    pod = spec["template"]["spec"]
    container = _container(pod, options, annotation)
    _check_taken(pod)
    environment = tuple(_environment(container))
    argv = _argv(container, options)
    given = {one.name: one.value for one in environment if one.source is None}
    cluster = ForeignCluster(
        kind=owner.kind if owner else KIND,
        name=owner.name if owner else name,
        namespace=owner.namespace if owner else metadata["namespace"].text(),
        parts=(Part(name, size, most),),
        procs=options.procs_per_node or (owner.procs if owner else None) or _procs(given.get(PROCS_VARIABLE, "")),
        argv=argv,
        environment=environment,
        container=container["name"].text(),
        run=options.run or (Run.NODE if is_torchrun(argv) else Run.TASKS),
        subdomain=(owner.subdomain if owner else "") or pod["subdomain"].text(),
        interactive=options.interactive,
        queue_policy=options.queue_policy or _queue_policy(container, given),
        options=options,
        job=job.mapping(),
        path=job.path,
        others=owner.others if owner else (),
    )
    job.end()
    return cluster


def check_head(document: Field, api_version: str, kind: str) -> None:
    """Note problems with a document's type. Raises InvalidForeign if it is not a mapping."""
    if not isinstance(document.value, dict):
        document.refuse(f"a {kind} must be a mapping with apiVersion, kind, metadata and spec")
        document.end()
    for key, wanted in (("apiVersion", api_version), ("kind", kind)):
        if document[key].value != wanted:
            document[key].refuse(f"must be {wanted}, not {kind_of(document[key].value)}")
    for key in ("metadata", "spec"):
        if not document[key].given:
            document[key].refuse("is required")


def read_name(metadata: Field) -> str:
    """The object's name. With generateName alone, the prefix to which Kubernetes adds five characters."""
    name = metadata["name"].text()
    if name:
        if not LABEL.match(name):
            metadata["name"].refuse(f"{name!r} cannot name hosts: {LABEL_RULE}")
        return name
    generated = metadata["generateName"].text().rstrip("-.")
    if not generated:
        metadata["name"].refuse("is required")
    elif not LABEL.match(generated):
        metadata["generateName"].refuse(f"{generated!r} cannot name hosts: {LABEL_RULE}")
    return generated


def _size(spec: Field) -> int:
    """The number of pods. If parallelism and completions are missing, it is 1, as in Kubernetes."""
    known = len(spec.problems)
    size = spec["parallelism"].number(1, 1, MOST_PODS)
    completions = spec["completions"]
    given = completions.given or spec["parallelism"].given
    if given and completions.number(size if completions.given else 0) != size and len(spec.problems) == known:
        found = kind_of(completions.value) if completions.given else "missing"
        completions.refuse(f"must be {size} (parallelism), not {found}: each index is a host of the cluster")
    return size


def _check_length(where: Field, name: str, most: int) -> None:
    last = f"{name}-{most - 1}"
    if len(last) > _MOST_NAME:
        where.refuse(f"is too long: the last host, {last}, must have at most {_MOST_NAME} characters")


def _check_success_policy(policy: Field, size: int) -> None:
    """Check that the Job cannot succeed without index 0, the lead."""
    for rule in policy["rules"].items():
        indexes, enough = rule["succeededIndexes"], rule["succeededCount"]
        text, among = indexes.text(), size
        if text:
            try:
                ids = Idset.parse(text, MOST_PODS)
            except IdsetError as exc:
                indexes.refuse(f"must be indexes such as 0,2-4: {exc}")
                continue
            if 0 not in ids:
                indexes.refuse(f"must include index 0, the lead, because the cluster ends with it, not {kind_of(text)}")
                continue
            among = len(ids)
        if enough.number(among) < among:
            enough.refuse(
                f"must be {among}, not {kind_of(enough.value)}: with fewer, the Job could succeed before its lead "
                "(index 0) has ended"
            )


def _container(pod: Field, options: Options, annotation: Field) -> Field:
    """The broker's container. Raises InvalidForeign if there is none."""
    containers = pod["containers"].items()
    _check_names([*pod["initContainers"].items(), *containers])
    named = {one["name"].required_text(): one for one in containers}
    if not containers:
        pod["containers"].refuse("must have at least one container")
        pod.end()
    names = ", ".join(named)
    if options.container:
        if options.container not in named:
            rule = f"{options.container!r} is not a container of the pod (its containers: {names})"
            annotation.below("container").refuse(rule)
        return named.get(options.container, containers[0])
    if len(containers) > 1 and _NODE not in named:
        rule = f"must say which of several containers has the command: {names}"
        annotation.below("container").refuse(rule)
    return named.get(_NODE, containers[0])


def _check_names(containers: list[Field]) -> None:
    """Check that the containers of a pod, including init containers, have different names."""
    known = set()
    for one in containers:
        name = one["name"].value
        if name == "":
            one["name"].refuse("must be the name of a container, not empty")
        elif isinstance(name, str) and name in known:
            one["name"].refuse(f"{name!r} is also the name of another container of the pod")
        known.add(name if isinstance(name, str) else "")


def _check_taken(pod: Field) -> None:
    """Check for names, paths and ports that Headrace needs for itself."""
    for kind in ("containers", "initContainers"):
        for one in pod[kind].items():
            if one["name"].text() == OUR_CONTAINER:
                one["name"].refuse(f"{OUR_CONTAINER} is the name of Headrace's own container: choose another name")
            for mount in one["volumeMounts"].items():
                path = posixpath.normpath(mount["mountPath"].text() or ".")
                if any(f"{path}/".startswith(f"{ours}/") for ours in OUR_MOUNTS):
                    mount["mountPath"].refuse(f"{path} is used by Headrace: choose a path outside {_mounts_as_text()}")
            for port in one["ports"].items():
                number = port["containerPort"].number(0)
                if number in (BROKER_PORT, CHANNEL_PORT):
                    port["containerPort"].refuse(f"{number} is a port that Headrace uses: choose another one")
    for volume in pod["volumes"].items():
        name = volume["name"].text()
        if name in OUR_VOLUMES:
            volume["name"].refuse(f"{name} is the name of a volume of Headrace: choose another name")


def _mounts_as_text() -> str:
    return " and ".join(OUR_MOUNTS)


def _environment(container: Field) -> Iterator[Variable]:
    """The container's variables, and the variable with the index that a Job sets in each pod."""
    names = set()
    for one in container["env"].items():
        name = one["name"].required_text()
        names.add(name)
        given = one["valueFrom"]["fieldRef"]["fieldPath"].text()
        if name.startswith(_OUR_VARIABLES) or (name == INDEX_VARIABLE and given not in _INDEX_FIELDS):
            one["name"].refuse(f"{name} is set by Kubernetes or Headrace in each pod: choose another variable")
        if one["name"].value == "":
            one["name"].refuse("must be the name of a variable, not empty")
        if "=" in name:
            one["name"].refuse(f"{name!r} is not a valid name of a variable, because it contains '='")
        value, source = one["value"].text(), one["valueFrom"]
        if value and source.given:
            source.refuse("cannot be combined with value")
        yield Variable(name, value, _source(source))
    if INDEX_VARIABLE not in names:
        yield Variable(INDEX_VARIABLE, source=Source("fieldRef", f"metadata.annotations['{INDEX_ANNOTATION}']"))


def _source(field: Field) -> Source | None:
    if not field.given:
        return None
    given = [kind for kind in _SOURCES if field[kind].given]
    if len(given) != 1:
        field.refuse(f"must have one of {', '.join(_SOURCES)}")
        return Source("", "")
    kind = given[0]
    parts = [field[kind][key].text() for key in _SOURCES[kind]]
    return Source(kind, "/".join(part for part in parts if part))


def _argv(container: Field, options: Options) -> tuple[str, ...]:
    command, arguments = container["command"].texts(), container["args"].texts()
    if options.interactive:
        return ()
    if not container["command"].value:
        container["command"].refuse(
            "is required, because the entry point of the image is not known; for a cluster without a command, set "
            f"interactive: true in {ANNOTATION}"
        )
    elif command and not command[0]:
        container["command"].refuse("must name a program: its first word is empty")
    return command + arguments


def is_torchrun(argv: tuple[str, ...]) -> bool:
    """True if a command starts the processes of its node itself, as PyTorch's launcher does."""
    program = posixpath.basename(argv[0] if argv else "")
    if program == "torchrun":
        return True
    if program in _SHELLS and any(_LAUNCHER.search(word) for word in argv[1:]):
        # The Kubeflow SDK runs the launcher in a shell script that first writes the file of the function.
        return True
    return any(pair in (("-m", "torch.distributed.run"), ("-m", "torchrun")) for pair in zip(argv[:4], argv[1:5]))


def _procs(text: str) -> int:
    """The number of processes in a variable; 1 for a word, which torchrun also accepts there."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1
    return min(max(number, 1), MOST_PROCS)


def _queue_policy(container: Field, given: dict[str, str]) -> str:
    policy = given.get(_POLICY_VARIABLE) or "fcfs"
    if policy not in QUEUE_POLICIES:
        rule = f"{_POLICY_VARIABLE} must be one of {', '.join(QUEUE_POLICIES)}, not {policy!r}"
        named = [one for one in container["env"].items() if one["name"].value == _POLICY_VARIABLE]
        named[-1]["value"].refuse(rule)
        return "fcfs"
    return policy
