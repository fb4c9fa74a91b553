"""The MiniCluster of a job: the fields of `minicluster`, and those of its container, which are keys of the job.

flux-cloud passes both on to the Flux Operator's Python SDK of 2023, which has names in snake case and the fields of
v1alpha1. Both spellings are accepted here; fields that v1alpha2 no longer has are translated or noted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from headrace.minicluster.api.declarations import fields_of
from headrace.minicluster.api.fields import API_VERSION, KIND, Container, InvalidMiniCluster, Spec

from .document import Value
from .section import Findings, Section, described, text_of

# Fields of the spec that experiments set, and fields of the container that are keys of jobs under other names.
_NOT_SPEC = ("containers", "size", "tasks")
_NOT_CONTAINER = ("command", "environment", "image", "name", "runFlux", "workingDir")
# Fields of v1alpha1 without a counterpart in v1alpha2.
_FORMER_SPEC = ("fluxRestful", "localDeploy", "users", "verbose")
_FORMER_CONTAINER = ("diagnostics", "fluxLogLevel", "fluxUser")
_NO_EFFECT = "has no effect: the MiniClusters of flux-framework.org/v1alpha2 have no such field"

Fields = dict[str, Value]


class MiniClusterDraft(Struct, frozen=True):
    """The key `minicluster`: fields of the spec by their names in the API, and what experiments use themselves.

    `sizes` is what flux-cloud repeats its jobs for. `others` are containers beside a job's own. `volumes` are those of
    v1alpha1, which containers mount by name.
    """

    name: str
    namespace: str
    sizes: Value | None
    tasks: int
    spec: Fields
    others: Value | None
    volumes: Value | None


def read_minicluster(value: Value | None, findings: Findings) -> MiniClusterDraft:
    section = Section(value, findings)
    draft = MiniClusterDraft(
        name=section.text("name"),
        namespace=section.text("namespace"),
        sizes=section.take("size"),
        tasks=section.whole("tasks", 0, 0, 10_000_000),
        spec=_known(section, [name for name in fields_of(Spec) if name not in _NOT_SPEC]),
        others=_list(section.take("containers"), findings),
        volumes=section.take("volumes"),
    )
    for former in _known(section, _FORMER_SPEC).values():
        findings.note(former, _NO_EFFECT)
    section.close("field of a MiniCluster")
    return draft


def read_container(section: Section, volumes: Value | None) -> Fields:
    """Fields of the container from the keys of a job. `volumes` are those of the MiniCluster in v1alpha1."""
    found = _known(section, [name for name in fields_of(Container) if name not in _NOT_CONTAINER])
    for former in _known(section, _FORMER_CONTAINER).values():
        section.findings.note(former, _NO_EFFECT)
    existing = section.take("existing_volumes", "existingVolumes")
    if existing is not None:
        both = {**_mapping(existing, section.findings), **_mapping(found.get("volumes"), section.findings)}
        found["volumes"] = Value(both, existing.line, existing.key)
    if "commands" in found:
        found["commands"] = _without(found["commands"], ("runFluxAsRoot", "run_flux_as_root"), section.findings)
    before = section.take("pre_command", "preCommand")
    if before is not None:
        text_of(before, section.findings)
        commands = {"pre": before, **_mapping(found.get("commands"), section.findings)}
        found["commands"] = Value(commands, before.line, before.key)
    resources = _former_resources(section)
    if resources is not None:
        found.setdefault("resources", resources)
    if volumes is not None and "volumes" in found:
        found["volumes"] = _with_sources(found["volumes"], volumes, section.findings)
    return found


def _known(section: Section, names: Iterable[str]) -> Fields:
    found = {}
    for name in names:
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
        value = section.take(*dict.fromkeys((name, snake)))
        if value is not None:
            found[name] = value
    return found


def _list(value: Value | None, findings: Findings) -> Value | None:
    if value is None or isinstance(value.data, list):
        return value
    findings.wrong(value, f"must be a list of containers, not {described(value)}")
    return None


def _mapping(value: Value | None, findings: Findings) -> Fields:
    """The values of a mapping; {} for anything else, which is reported."""
    return Section(value, findings).items


def _former_resources(section: Section) -> Value | None:
    """Resources by the keys of files for flux-cloud 0.1, whose users had templates of MiniClusters of their own."""
    amounts = {name: value for name in ("memory", "cpu") if (value := section.take(name)) is not None}
    found = {}
    for name in ("limits", "requests"):
        value = section.take(name)
        others = _mapping(value, section.findings)
        if amounts or others:
            first = value or next(iter(amounts.values()))
            found[name] = Value({**amounts, **others}, first.line, first.key)
    if not found:
        return None
    first = next(iter(found.values()))
    return Value(found, first.line, first.key)


def _without(value: Value, former: tuple[str, ...], findings: Findings) -> Value:
    """A mapping without these fields of v1alpha1, which are noted."""
    if not isinstance(value.data, dict):
        return value
    for name in value.data.keys() & set(former):
        findings.note(value.data[name], _NO_EFFECT)
    return Value({name: one for name, one in value.data.items() if name not in former}, value.line, value.key)


def _with_sources(mounts: Value, volumes: Value, findings: Findings) -> Value:
    """Mounts of a container, with the folders of nodes that v1alpha1 had in volumes of the MiniCluster."""
    if not isinstance(mounts.data, dict) or not isinstance(volumes.data, dict):
        return mounts
    mounted = dict(mounts.data)
    for name, mount in mounts.data.items():
        source = volumes.data.get(name)
        if source is None or not isinstance(source.data, dict) or not isinstance(mount.data, dict):
            continue
        kind, path = source.data.get("storageClass"), source.data.get("path")
        if path is not None and kind is not None and kind.data == "hostpath":
            mounted[name] = Value({"hostPath": path, **mount.data}, mount.line, mount.key)
        else:
            del mounted[name]
            findings.note(source, "has no effect: give the job a volume with claimName, hostPath or configMapName")
    return Value(mounted, mounts.line, mounts.key)


def joined(draft: MiniClusterDraft, container: Fields) -> dict[str, Any]:
    """Both as plain data: fields of the spec, where the job's own container is the first of `containers`."""
    found = {name: value.plain() for name, value in draft.spec.items()}
    more = [] if draft.others is None else draft.others.plain()
    if container or more:
        own = {name: value.plain() for name, value in container.items()}
        found["containers"] = [{"runFlux": True, **own} if more else own, *more]
    return found


def check(
    minicluster: dict[str, Any], draft: MiniClusterDraft, container: Fields, job: Value, findings: Findings
) -> None:
    """Check the filled fields as `headrace mini validate` does. Problems get the lines of the fields, or of the job."""
    # The rules' import costs as much as all else that reads a file.
    from headrace.minicluster.api import validate

    own, *more = minicluster.get("containers") or [{}]
    containers = [{"image": "image", "command": "true", **own}, *more]
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "experiment"}}
    try:
        validate.check({**document, "spec": {**minicluster, "containers": containers}})
    except InvalidMiniCluster as exc:
        for problem in exc.problems:
            path = problem.path.removeprefix("spec.")
            fields = container if path.startswith("containers[0].") else draft.spec
            path = path.removeprefix("containers[0].")
            name, dot, rest = path.partition(".")
            name, bracket, index = name.partition("[")
            value = fields.get(name)
            if value is None:
                findings.wrong(job, f"{problem.path}: {problem.rule}")
            else:
                findings.wrong(value.find(f"{bracket}{index}{dot}{rest}"), f"{path}: {problem.rule}")
