"""Converts a Job, JobSet or TrainJob to a MiniCluster, and reports fields that get lost. Pure.

`cluster` is always the ForeignCluster that is converted, never the MiniCluster.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from headrace.k8s.objects.problems import Problem
from headrace.minicluster.api.declarations import FieldType, fields_of
from headrace.minicluster.api.fields import API_VERSION, KIND, Container, InvalidMiniCluster, Pod, Record, Spec, Volume
from headrace.minicluster.api.validate import check

from . import trainjob
from .cluster import ForeignCluster, expand
from .field import Field, InvalidForeign
from .options import ANNOTATION, Exit, Run, Spread

# Fields of a Job that are not reported as lost: they are converted, or follow from the cluster's size and rules.
_JOB = (
    *("parallelism", "completions", "completionMode", "template", "backoffLimit", "activeDeadlineSeconds"),
    *("ttlSecondsAfterFinished", "suspend", "podFailurePolicy", "podReplacementPolicy"),
)
# Fields of a pod that exist under the same name in a MiniCluster's `pod`.
_POD = (
    *("nodeSelector", "tolerations", "serviceAccountName", "schedulerName", "runtimeClassName", "dnsPolicy", "hostIPC"),
    *("hostPID", "securityContext", "automountServiceAccountToken"),
)
_POD_PLACED = (*_POD, "containers", "volumes", "restartPolicy", "shareProcessNamespace")
# Fields of a container that exist under the same name in a MiniCluster's container.
_CONTAINER = ("image", "imagePullPolicy", "workingDir", "resources", "securityContext")
_CONTAINER_PLACED = (*_CONTAINER, "name", "command", "args", "env", "ports", "volumeMounts")
_SHARED_MEMORY = "shared-memory"


def convert(cluster: ForeignCluster) -> tuple[dict[str, Any], list[str]]:
    """The document of a valid MiniCluster that runs the Job's command, and the paths of lost fields.

    A field is lost if a MiniCluster has no equivalent. Raises InvalidForeign, with the problems, if the MiniCluster
    would be invalid.
    """
    lost: list[str] = list(cluster.others)
    job = Field(cluster.job, cluster.path)
    spec = _spec(cluster, job, lost)
    metadata = {"name": cluster.name, **({"namespace": cluster.namespace} if cluster.namespace else {})}
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    job.end()
    try:
        check(document)
    except InvalidMiniCluster as exc:
        problems = [Problem(one.path, f"{one.rule} (in the MiniCluster)") for one in exc.problems]
        raise InvalidForeign(problems) from None
    return document, lost


def _spec(cluster: ForeignCluster, job: Field, lost: list[str]) -> dict[str, Any]:
    options, spec = cluster.options, job["spec"]
    template = spec["template"]
    pod = template["spec"]
    found: dict[str, Any] = {"size": cluster.size}
    if cluster.max_size > cluster.size:
        found["maxSize"] = cluster.max_size
    if cluster.interactive:
        found["interactive"] = True
    else:
        found["tasks"] = 0 if cluster.run is Run.NODE else cluster.tasks
    _copy(spec, found, Spec, ("suspend", "ttlSecondsAfterFinished", "podFailurePolicy", "backoffLimit"), lost)
    if spec["activeDeadlineSeconds"].given:
        found["deadlineSeconds"] = spec["activeDeadlineSeconds"].value
    _name_container(found, cluster)
    labels = job["metadata"]["labels"].mapping()
    if labels:
        found["jobLabels"] = labels
    lost += job["metadata"].members_but(("name", "generateName", "namespace", "labels", "annotations"))
    lost += job["metadata"]["annotations"].members_but((ANNOTATION,))
    lost += spec.members_but(_JOB)
    flux: dict[str, Any] = {}
    if cluster.queue_policy != "fcfs":
        flux["scheduler"] = {"queuePolicy": cluster.queue_policy}
    if cluster.argv and cluster.run is not Run.PROGRAM:
        options_of_job = ["-o torch"] if cluster.kind == trainjob.KIND else []
        # Without the option, the job shell would expand templates such as {{id}} in the words.
        options_of_job += ["-o literal-args"] if any("{{" in word for word in cluster.argv) else []
        flux.update({"optionFlags": " ".join(options_of_job)} if options_of_job else {})
    if flux:
        found["flux"] = flux
    found["containers"] = [_container(cluster, pod, lost)]
    given_pod = _pod(template, options.exit, lost)
    if given_pod:
        found["pod"] = given_pod
    if pod["shareProcessNamespace"].given:
        found["shareProcessNamespace"] = pod["shareProcessNamespace"].value
    if options.spread is Spread.NONE:
        found["network"] = {"disableAffinity": True}
    elif options.spread is Spread.REQUIRED:
        lost.append(f"{job['metadata']['annotations'][ANNOTATION].path}.spread")
    return found


def _name_container(found: dict[str, Any], cluster: ForeignCluster) -> None:
    """Rename the container in the rules of the failure policy.

    In a MiniCluster's pods, the container has the MiniCluster's name.
    """
    policy = found.get("podFailurePolicy")
    if not isinstance(policy, dict) or not isinstance(policy.get("rules"), list):
        return

    def named(rule: Any) -> Any:
        codes = rule.get("onExitCodes") if isinstance(rule, dict) else None
        if isinstance(codes, dict) and codes.get("containerName") == cluster.container:
            return {**rule, "onExitCodes": {**codes, "containerName": cluster.name}}
        return rule

    found["podFailurePolicy"] = {**policy, "rules": [named(rule) for rule in policy["rules"]]}


def _pod(template: Field, exit_: Exit, lost: list[str]) -> dict[str, Any]:
    spec = template["spec"]
    found: dict[str, Any] = {}
    _copy(template["metadata"], found, Pod, ("labels", "annotations"), lost)
    _copy(spec, found, Pod, _POD, lost)
    if exit_ is Exit.KEEP:
        _copy(spec, found, Pod, ("restartPolicy",), lost)
    lost += template["metadata"].members_but(("labels", "annotations"))
    secrets = spec["imagePullSecrets"].items()
    lost += spec.members_but((*_POD_PLACED, *(("imagePullSecrets",) if len(secrets) < 2 else ())))
    return found


def _container(cluster: ForeignCluster, pod: Field, lost: list[str]) -> dict[str, Any]:
    one: Field = next(one for one in pod["containers"].items() if one["name"].value == cluster.container)
    found: dict[str, Any] = {}
    _copy(one, found, Container, _CONTAINER, lost)
    environment, secrets = _variables(cluster, one, lost)
    if cluster.argv:
        found["command"] = _command(cluster, environment, secrets)
    if cluster.run is Run.PROGRAM and cluster.argv:
        found["launcher"] = True
    if environment:
        found["environment"] = environment
    if secrets:
        found["secrets"] = secrets
    ports = one["ports"].items()
    if ports:
        found["ports"] = [port["containerPort"].value for port in ports]
        lost += [path for port in ports for path in port.members_but(("containerPort",))]
    pull_secrets = pod["imagePullSecrets"].items()
    if pull_secrets:
        found["imagePullSecret"] = pull_secrets[0]["name"].text()
    volumes = _volumes(cluster, pod, one, lost)
    if volumes:
        found["volumes"] = volumes
    others = [other for other in pod["containers"].items() if other.path != one.path]
    lost += [f"{other.path} ({other['name'].text()})" for other in others]
    lost += one.members_but(_CONTAINER_PLACED)
    return found


def _variables(
    cluster: ForeignCluster, container: Field, lost: list[str]
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The variables with values, and the variables from Secrets."""
    secrets = {}
    for one in container["env"].items():
        reference = one["valueFrom"]["secretKeyRef"]
        if reference.given:
            secrets[one["name"].text()] = {"name": reference["name"].text(), "key": reference["key"].text()}
            lost += reference.members_but(("name", "key"))
        elif one["valueFrom"].given:
            lost.append(f"{one.path} ({one['name'].text()})")
    return cluster.variables(lambda _source: None), secrets


def _command(cluster: ForeignCluster, environment: dict[str, str], secrets: Iterable[str]) -> str:
    """The command as shell text. The shell expands references to variables from Secrets."""
    words = [_shell_word(word, environment, secrets) for word in cluster.argv]
    if cluster.run is Run.PROGRAM and not words[0].startswith(("'", '"')):
        # Without quotes the shell might read the word as an assignment or a keyword.
        words[0] = f"'{words[0]}'"
    return " ".join(words)


def _shell_word(word: str, environment: dict[str, str], secrets: Iterable[str]) -> str:
    secret = {name: f"\0{name}\0" for name in secrets}
    # NUL cannot occur in a word, so it marks the references to Secrets.
    parts = expand(word, {**environment, **secret}).split("\0")
    quoted = [f'"${{{part}}}"' if index % 2 else shlex.quote(part) for index, part in enumerate(parts)]
    return "".join(part for part in quoted if part != "''") or "''"


def _volumes(cluster: ForeignCluster, pod: Field, container: Field, lost: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    mounts: dict[str, Field] = {}
    for mount in container["volumeMounts"].items():
        name = mount["name"].required_text()
        if name in mounts:
            lost.append(f"{mount.path} ({mount['mountPath'].text()})")
            continue
        mounts[name] = mount
        lost += mount.members_but(("name", "mountPath", "readOnly"))
    for volume in pod["volumes"].items():
        mount = mounts.get(volume["name"].text(), Field(None))
        source = _source(volume, lost) if mount.given else {}
        if not source:
            lost.append(f"{volume.path} ({volume['name'].text()})")
            continue
        found[volume["name"].text()] = {"path": mount["mountPath"].value, **source}
        _copy(mount, found[volume["name"].text()], Volume, ("readOnly",), lost)
    memory = cluster.options.shared_memory
    if memory not in ("", "none"):
        folder = {"path": "/dev/shm", "emptyDir": True, "emptyDirMedium": "Memory", "emptyDirSizeLimit": memory}
        found[_SHARED_MEMORY] = folder
    return found


def _source(volume: Field, lost: list[str]) -> dict[str, Any]:
    """The source of a volume's files in the form of a MiniCluster; {} if a MiniCluster lacks that source."""
    tables: dict[str, dict[str, str]] = {
        "emptyDir": {"medium": "emptyDirMedium", "sizeLimit": "emptyDirSizeLimit"},
        "hostPath": {"path": "hostPath"},
        "configMap": {"name": "configMapName", "items": "items"},
        "secret": {"secretName": "secretName", "items": "items"},
        "persistentVolumeClaim": {"claimName": "claimName", "readOnly": "readOnly"},
        "csi": {"driver": "csiDriver", "volumeAttributes": "csiDriverAttributes", "readOnly": "readOnly"},
    }
    for kind, names in tables.items():
        source = volume[kind]
        if not source.given:
            continue
        found: dict[str, Any] = {"emptyDir": True} if kind == "emptyDir" else {}
        for key, name in names.items():
            if key == "items" and source[key].given:
                items = source[key].items()
                found[name] = {item["key"].text(): item["path"].text() for item in items}
                lost += [path for item in items for path in item.members_but(("key", "path"))]
            elif source[key].given:
                found[name] = source[key].value
        lost += source.members_but(tuple(names))
        return found
    return {}


def _copy(source: Field, into: dict[str, Any], record: type[Record], keys: tuple[str, ...], lost: list[str]) -> None:
    """Copy the fields `keys` of `source`, where given, to the fields of the same names in `into`."""
    known = fields_of(record)
    for key in keys:
        value = _placed(source[key], known[key].type, lost)
        if value not in (None, {}):
            into[key] = value


def _placed(given: Field, kind: FieldType, lost: list[str]) -> Any:
    """The value for a MiniCluster's field of this type. Members that the type lacks are added to `lost`."""
    if kind.kind is list and kind.item and isinstance(given.value, list):
        return [_placed(item, kind.item, lost) for item in given.items()]
    if not isinstance(given.value, dict) or not issubclass(kind.kind, Record):
        return given.value
    known = fields_of(kind.kind)
    lost += given.members_but(tuple(known))
    return {key: _placed(given[key], known[key].type, lost) for key in given.value if key in known}
