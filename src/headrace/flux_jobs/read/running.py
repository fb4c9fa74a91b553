"""A cluster without Kubernetes: jobspec (RFC 14), plan of local brokers, unused fields. Pure.

A variable that differs between pods, because it contains the index or the name of the pod, is a template that the job
shell expands on each node. In the command it has the lead's value, because Kubernetes expands the command in the lead's
pod.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from headrace.formats.spec import jobspec_build
from headrace.minicluster.api.plan import DEFAULT_OUTPUT, Plan, hosts_of
from headrace.minicluster.api.pod_names import ADDRESS, PodNames
from headrace.minicluster.api.shell_text import Mode

from .cluster import INDEX_ANNOTATION, PROCS_VARIABLE, ForeignCluster, Source
from .field import Field
from .options import ANNOTATION, Exit, Run, Spread

# Fields of which a Flux instance does the same by itself, or through its jobspec or plan.
_JOB = (
    *("parallelism", "completions", "completionMode", "template", "backoffLimit", "activeDeadlineSeconds"),
    *("podReplacementPolicy", "podFailurePolicy", "successPolicy", "ttlSecondsAfterFinished"),
)
_POD = ("containers", "restartPolicy", "terminationGracePeriodSeconds", "shareProcessNamespace", "subdomain")
_CONTAINER = ("name", "command", "args", "env", "workingDir", "ports", "imagePullPolicy")
# Variables with an address, which `-o torch` sets if they are absent.
_ADDRESSES = ("MASTER_ADDR", "PET_MASTER_ADDR")
_NODE_ID = "{{node.id}}"
_LEAD = "0"


def with_sizes(cluster: ForeignCluster, nodes: int | None, procs: int | None) -> ForeignCluster:
    """The cluster with another number of nodes, and of processes on each node."""
    if nodes is not None:
        part = structs.replace(cluster.parts[0], size=nodes, max_size=nodes)
        cluster = structs.replace(cluster, parts=(part,))
    if procs is not None:
        # The variable keeps its position, because others may refer to it.
        variables = tuple(
            structs.replace(one, value=str(procs), source=None) if one.name == PROCS_VARIABLE else one
            for one in cluster.environment
        )
        cluster = structs.replace(cluster, procs=procs, environment=variables)
    return cluster


def environment(cluster: ForeignCluster, *, local: bool) -> tuple[dict[str, str], dict[str, str]]:
    """The container's variables: values, and templates for those that differ between nodes."""
    lead, of_node = (_variables(cluster, index, local) for index in (_LEAD, _NODE_ID))
    values = {name: value for name, value in lead.items() if of_node[name] == value}
    return values, {name: value for name, value in of_node.items() if name not in values}


def words(cluster: ForeignCluster, *, local: bool) -> list[str]:
    """The command that the lead's pod would run."""
    found = cluster.words(cluster.variables(_look_up(cluster, _LEAD)))
    return [_pod_names(cluster).replaced(word) for word in found] if local else found


def unresolved(cluster: ForeignCluster, *, local: bool) -> list[str]:
    """The variables and words that name pods without an address: `PEER (set-other-0-0.set)`.

    The job's program receives them unchanged.
    """
    names, variables = _pod_names(cluster), _variables(cluster, _LEAD, local)
    given = {one.name: one.value for one in cluster.environment}
    absent = set() if local else _left_to_torch(cluster, variables)
    texts = {
        name: names.first_name_in(value, given.get(name, "")) for name, value in variables.items() if name not in absent
    }
    first = len(_container(cluster)["command"].items())
    for index, word in enumerate(words(cluster, local=local)):
        place = f"command[{index}]" if index < first else f"args[{index - first}]"
        texts[place] = names.first_name_in(word, cluster.argv[index])
    return [f"{place} ({pod})" for place, pod in texts.items() if pod]


def _left_to_torch(cluster: ForeignCluster, variables: Mapping[str, str]) -> set[str]:
    """The variables that name the pod of index 0; `-o torch` sets them to the address of its node."""
    if cluster.interactive or cluster.run is Run.PROGRAM:
        return set()
    names = _pod_names(cluster)
    return {name for name in _ADDRESSES if names.index_of(variables.get(name, "")) == 0}


def _variables(cluster: ForeignCluster, index: str, local: bool) -> dict[str, str]:
    """The variables of the pod with an index. With `local`, names of pods are replaced by addresses."""
    found = cluster.variables(_look_up(cluster, index))
    if not local:
        return found
    names = _pod_names(cluster)
    return {
        name: ADDRESS if name in _ADDRESSES and names.index_of(value) is not None else names.replaced(value)
        for name, value in found.items()
    }


def _pod_names(cluster: ForeignCluster) -> PodNames:
    return PodNames(cluster.parts[0].job, cluster.size, cluster.subdomain, cluster.namespace, cluster.name)


def _look_up(cluster: ForeignCluster, index: str) -> Callable[[Source], str | None]:
    """A function that returns the values that the pod with an index knows about itself."""
    pod = Field(cluster.job)["spec"]["template"]["metadata"]
    known = {
        f"metadata.annotations['{INDEX_ANNOTATION}']": index,
        f"metadata.labels['{INDEX_ANNOTATION}']": index,
        "metadata.name": f"{cluster.parts[0].job}-{index}",
        "metadata.namespace": cluster.namespace or "default",
    }
    for kind in ("labels", "annotations"):
        for key, value in pod[kind].mapping().items():
            known[f"metadata.{kind}['{key}']"] = value if isinstance(value, str) else ""
    return lambda source: known.get(source.what) if source.kind == "fieldRef" else None


def jobspec(cluster: ForeignCluster, base: Mapping[str, str], cwd: str, *, gpus: bool, local: bool) -> dict[str, Any]:
    """The jobspec of the cluster: whole nodes, on which the command's tasks or an instance run.

    `base` are the submitter's variables; the container's variables override them. With `gpus`, the GPUs of a node in R
    are divided among its tasks; otherwise tasks see all GPUs that exist. With `local`, brokers of one machine run the
    job, and that machine is the host of all pods.
    """
    attributes: dict[str, Any] = {
        "cwd": cwd,
        "name": cluster.name,
        "input": "/dev/null",
        "duration": _deadline(cluster),
    }
    if cluster.interactive or cluster.run is Run.PROGRAM:
        attributes["environment"] = {**base, **_variables(cluster, _LEAD, local)}
        return _instance_jobspec(cluster, attributes, local)
    values, templates = environment(cluster, local=local)
    absent = {*templates, *_left_to_torch(cluster, values)}
    attributes["environment"] = {name: value for name, value in {**base, **values}.items() if name not in absent}
    attributes["env_expand"] = templates
    spec = jobspec_build.per_resource(
        words(cluster, local=local),
        nnodes=cluster.size,
        per_resource_type="node",
        per_resource_count=cluster.tasks // cluster.size,
        exclusive=True,
        **attributes,
    )
    # The words are the user's, and may contain the characters of a template.
    for option in ("literal-args", "torch"):
        jobspec_build.set_shell_option(spec, option)
    jobspec_build.set_shell_option(spec, "cpu-affinity", "per-task")
    jobspec_build.set_shell_option(spec, "gpu-affinity", "per-task" if gpus else "off")
    return spec


def _instance_jobspec(cluster: ForeignCluster, attributes: dict[str, Any], local: bool) -> dict[str, Any]:
    """The jobspec of an instance on the cluster's nodes, with the command as its initial program."""
    conf = {"sched-fluxion-qmanager": {"queue-policy": cluster.queue_policy}}
    shape: dict[str, Any] = {"num_nodes": cluster.size, "exclusive": True, "conf": conf, **attributes}
    if cluster.interactive:
        return jobspec_build.from_nest_command(["sleep", "infinity"], cluster.size, **shape)
    # The job shell expands templates in the broker's arguments, but not in a script, so the user's words stay
    # unchanged.
    script = f"#!/bin/sh\nexec {shlex.join(words(cluster, local=local))}\n"
    return jobspec_build.from_batch_command(script, cluster.name, num_slots=cluster.size, **shape)


def _deadline(cluster: ForeignCluster) -> float | None:
    seconds = Field(cluster.job)["spec"]["activeDeadlineSeconds"].number(0, 1)
    return float(seconds) if seconds else None


def plan(cluster: ForeignCluster, base: Mapping[str, str], cwd: str) -> Plan:
    """The plan of local brokers that run the cluster; `base` and `cwd` are as in `jobspec`."""
    before, program, mode = "", "", Mode.INTERACTIVE
    if cluster.interactive:
        pass
    elif cluster.run is Run.PROGRAM:
        settings = [f"{name}={value}" for name, value in _variables(cluster, _LEAD, True).items()]
        # env would take a first word with "=" for a variable, so a shell starts the program.
        program = shlex.join(["env", *settings, "sh", "-c", 'exec "$@"', "sh", *words(cluster, local=True)]) + "\n"
        mode = Mode.LAUNCHER
    else:
        text = json.dumps(jobspec(cluster, base, cwd, gpus=False, local=True))
        before = f'printf %s {shlex.quote(text)} > "$HEADRACE_MINI_DIR/jobspec"\n'
        program = (
            'headrace_job=$(flux job submit "$HEADRACE_MINI_DIR/jobspec") && '
            'flux job attach --read-only "$headrace_job"\n'
        )
        mode = Mode.SUBMIT
    return brokers(cluster, cwd, mode, program, before)


def brokers(cluster: ForeignCluster, cwd: str, mode: Mode, program: str, before: str = "") -> Plan:
    """The plan of local brokers for the cluster, in the directory `cwd`.

    The shell text `program` runs within the instance, and `before` runs before the brokers.
    """
    name = cluster.parts[0].job
    return Plan(
        name=name,
        size=cluster.size,
        hosts=hosts_of(name, cluster.size),
        quorum="",
        mode=mode,
        attrs={"log-stderr-level": "6"},
        config={"sched-fluxion-qmanager": {"queue-policy": cluster.queue_policy}},
        environment={},
        output_dir=DEFAULT_OUTPUT,
        working_dir=cwd,
        strict=False,
        quiet=False,
        timed=False,
        before="",
        lead_before=before,
        follower_before="",
        initial_program=program,
        after="",
    )


def not_applied(cluster: ForeignCluster) -> list[str]:
    """The paths of the given fields that have no effect without Kubernetes."""
    job = Field(cluster.job, cluster.path)
    spec = job["spec"]
    pod = spec["template"]["spec"]
    found = [*cluster.others, *spec.members_but(_JOB), *pod.members_but(_POD)]
    for one in pod["containers"].items():
        if one["name"].value != cluster.container:
            found.append(f"{one.path} ({one['name'].text()})")
            continue
        found += one.members_but(_CONTAINER)
        known = _variables(cluster, _LEAD, False)
        found += [
            f"{variable.path} ({variable['name'].text()})"
            for variable in one["env"].items()
            if variable["name"].value not in known
        ]
    annotation = job["metadata"]["annotations"][ANNOTATION]
    options = cluster.options
    given = {
        "sharedMemory": bool(options.shared_memory),
        "maxSize": options.max_size is not None,
        "spread": options.spread is not Spread.PREFERRED,
        "exit": options.exit is not Exit.HONEST,
    }
    return found + [annotation.below(key).path for key, is_given in given.items() if is_given]


def working_dir(cluster: ForeignCluster) -> str:
    """The container's working directory, "" if it has none."""
    return _container(cluster)["workingDir"].text()


def _container(cluster: ForeignCluster) -> Field:
    """The container with the command."""
    containers = Field(cluster.job)["spec"]["template"]["spec"]["containers"].items()
    return next(one for one in containers if one["name"].value == cluster.container)
