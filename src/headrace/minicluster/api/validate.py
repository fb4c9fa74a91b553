"""Reads a MiniCluster file and reports all its problems at once, each with its path and the rule.

There are two passes, both pure: first the shape (fields and types, from `fields`), then the rules that the API server,
the operator or its objects would enforce later. The second pass skips the parts that have a wrong shape and problems
that depend on them, so that each mistake is reported once. Files that work with the Flux Operator must be accepted.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from types import NoneType
from typing import Any, NamedTuple

import msgspec

from headrace.formats.config import keys as config_keys
from headrace.formats.config.files import ConfigError
from headrace.formats.spec.curve_certificate import key_pair
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.topology import Topology, TopologyError
from headrace.k8s.objects.labels import check_key, check_labels
from headrace.k8s.objects.problems import LABEL, LABEL_RULE, Problem

from .added_rules import check_added_fields
from .comparisons import check_comparisons
from .declarations import FieldType, Format, check_marks, fields_of, type_of
from .documents import documents
from .fields import API_VERSION, KIND, QUANTITY, Bursting, Container, InvalidMiniCluster, MiniCluster, Record, Spec
from .object_rules import check_objects, check_variables
from .plan import given_config, job_lines
from .shell_rules import check_shell_texts
from .size_rules import check_hosts, check_spec_size, check_texts

_HOST_LIMIT = 63
_SPEC, _TEXTS = type_of(Spec), type_of(dict[str, str])
_REQUIRED = "is required"
# For each field, the other fields of the same object that its rule reads.
_LOOKED_AT = {
    "maxSize": ("size",),
    "minSize": ("size",),
    "launcher": ("batch",),
    "command": ("batch", "commands"),
    "path": ("emptyDir",),
}
# For fields by the beginning of their path, the fields of other objects that their rules read.
_LOOKED_AT_ELSEWHERE = {
    "spec.autoscale.minSize": ("spec.size", "spec.maxSize", "spec.minSize"),
    "spec.podFailurePolicy.rules": ("spec.containers", "spec.flux"),
    "spec.groups": ("spec.flux",),
}

_METADATA = (
    *("annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers"),
    *("generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences"),
    *("resourceVersion", "selfLink", "uid"),
)


class Source(NamedTuple):
    """The contents of a file.

    `others` are the other objects in it ("PersistentVolumeClaim/data"). `documents` are all documents as they were
    read.
    """

    cluster: MiniCluster
    others: list[str]
    warnings: list[str]
    documents: list[Any]


def load(text: str, suffix: str = "") -> Source:
    """The only MiniCluster in a YAML text. Raises InvalidMiniCluster with all problems.

    With `suffix`, a document without a name gets the name `generateName` + `suffix`, as the API server would name it.
    """
    found, warnings = documents(text)
    found = [_named(one, suffix) for one in found] if suffix else found
    clusters = [one for one in found if isinstance(one, dict) and one.get("kind") == KIND]
    if not clusters and len(found) == 1:
        clusters = found
    if len(clusters) != 1:
        number = f"{len(clusters)} of them" if clusters else "none"
        raise InvalidMiniCluster([Problem("", f"a file must hold one {KIND}, this one holds {number}")])
    others = [_called(one) for one in found if one is not clusters[0]]
    return Source(check(clusters[0]), others, warnings, found)


def check(document: Any) -> MiniCluster:
    """A parsed document as a MiniCluster. Raises InvalidMiniCluster with all problems."""
    if not isinstance(document, dict):
        raise InvalidMiniCluster([Problem("", f"a {KIND} must be a mapping with apiVersion, kind, metadata and spec")])
    problems = list(_check_head(document))
    raw = document.get("spec")
    spec, wrong = None, set[str]()
    if raw is None:
        problems.append(Problem("spec", _REQUIRED))
    else:
        shape = list(_check_shape(raw, _SPEC, "spec"))
        problems += shape
        well_shaped, wrong = _well_shaped(raw, shape)
        if "spec" not in wrong:
            spec = msgspec.convert(_without_nulls(well_shaped), Spec)
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if spec:
        cluster = MiniCluster(name=name if isinstance(name, str) else "", spec=spec)
        found = [*_check_rules(spec), *check_objects(cluster), *check_added_fields(cluster)]
        sizes = [*check_spec_size(well_shaped), *(check_texts(cluster) if spec.containers else ())]
        # Quotes are checked only if all sizes are within their limits.
        found += sizes or check_shell_texts(cluster)
        ruled = {one.path for one in found}
        found = [*(one for one in check_marks(spec, _SPEC, "spec") if one.path not in ruled), *found]
        problems += [one for one in found if not _depends(one.path, wrong)]
    if isinstance(name, str):
        problems += _check_name(name, max(spec.size, spec.max_size) if spec else 1)
        problems += _check_name_is_free(name, spec.containers if spec else [])
    if problems or spec is None or not isinstance(metadata, dict):
        raise InvalidMiniCluster(problems)
    return MiniCluster(name=metadata["name"], namespace=metadata.get("namespace") or "", spec=spec)


def _named(document: Any, suffix: str) -> Any:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    prefix = metadata.get("generateName") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or metadata.get("name") or not isinstance(prefix, str) or not prefix:
        return document
    kept = {key: value for key, value in metadata.items() if key not in ("generateName", "name")}
    return {**document, "metadata": {"name": f"{prefix}{suffix}", **kept}}


def _called(document: Any) -> str:
    if not isinstance(document, dict):
        return type(document).__name__
    metadata = document.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{document.get('kind', 'document')}/{name}"


# --- shape


def _check_head(document: dict[str, Any]) -> Iterator[Problem]:
    known = ("apiVersion", "kind", "metadata", "spec", "status")
    for key in document:
        if key not in known:
            yield Problem(key, _unknown_field(key, known))
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(key) != wanted:
            yield Problem(key, f"must be {wanted}, not {document.get(key)!r}" if key in document else "is required")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        yield Problem("metadata", "is required and must be a mapping with a name")
        return
    if not isinstance(metadata.get("name"), str):
        yield Problem("metadata.name", "is required and must be text")
    if not isinstance(metadata.get("namespace", ""), (str, NoneType)):
        yield Problem("metadata.namespace", f"must be text, not {_kind_of(metadata['namespace'])}")
    for key in metadata:
        if key not in _METADATA:
            yield Problem(f"metadata.{key}", _unknown_field(key, _METADATA))
    if metadata.get("namespace") and not LABEL.match(str(metadata["namespace"])):
        yield Problem("metadata.namespace", f"{metadata['namespace']!r} is not a valid name: {LABEL_RULE}")
    for key in ("labels", "annotations"):
        given = metadata.get(key) or {}
        wrong = list(_check_shape(given, _TEXTS, f"metadata.{key}"))
        yield from wrong
        if not wrong and key == "labels":
            yield from check_labels(given, "metadata.labels")
        elif not wrong:
            for name in given:
                yield from check_key(name, "metadata.annotations")


def _check_shape(value: Any, kind: FieldType, path: str) -> Iterator[Problem]:
    """Compare `value` with the type in `fields`; null counts as an absent field."""
    if Format.QUANTITY in kind.marks:
        if isinstance(value, bool) or not isinstance(value, (str, int)) or not QUANTITY.match(str(value)):
            yield Problem(path, f"must be a quantity such as 2, 500m or 1Gi, not {value!r}")
    elif kind.kind is list and kind.item:
        if not isinstance(value, list):
            yield Problem(path, f"must be a list, not {_kind_of(value)}")
            return
        for index, item in enumerate(value):
            yield from _check_shape(item, kind.item, f"{path}[{index}]")
    elif kind.kind is dict and kind.item:
        if not isinstance(value, dict):
            yield Problem(path, f"must be a mapping, not {_kind_of(value)}")
            return
        for key, item in value.items():
            yield from _check_shape(item, kind.item, f"{path}.{key}")
    elif issubclass(kind.kind, Record):
        yield from _check_record(value, kind.kind, path)
    elif kind.kind is int:
        yield from _check_integer(value, 2**63 if Format.INT64 in kind.marks else 2**31, path)
    elif kind.kind is bool:
        if not isinstance(value, bool):
            yield Problem(path, f"must be true or false, not {_kind_of(value)}")
    elif not isinstance(value, str):
        written = str(value).lower() if isinstance(value, bool) else value
        advice = f'; write "{written}" in quotes' if isinstance(value, (int, float)) else ""
        yield Problem(path, f"must be text, not {_kind_of(value)}{advice}")
    elif "\0" in value:
        yield Problem(path, "must not contain the character NUL")


def _check_record(value: Any, record: type[Record], path: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(path, f"must be a mapping, not {_kind_of(value)}")
        return
    known = fields_of(record)
    for key, item in value.items():
        if key not in known:
            yield Problem(f"{path}.{key}", _unknown_field(key, tuple(known)))
        elif item is not None:
            yield from _check_shape(item, known[key].type, f"{path}.{key}")
    for key, one in known.items():
        if one.required and value.get(key) is None:
            yield Problem(f"{path}.{key}", _REQUIRED)


def _check_integer(value: Any, limit: int, path: str) -> Iterator[Problem]:
    if isinstance(value, bool) or not isinstance(value, int):
        given = str(value) if isinstance(value, float) else _kind_of(value)
        yield Problem(path, f"must be a whole number, not {given}")
    elif not -limit <= value < limit:
        yield Problem(path, f"must lie between {-limit} and {limit - 1}")


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    kinds = {str: "text", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    return kinds.get(type(value), type(value).__name__)


def _unknown_field(key: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(key, known, 1)
    if not close:
        lower = {name.lower(): name for name in known}
        close = [lower[key.lower()]] if key.lower() in lower else []
    return "unknown field" + (f", did you mean {close[0]}?" if close else "")


def _well_shaped(raw: Any, shape: list[Problem]) -> tuple[Any, set[str]]:
    """`raw` without the parts that `shape` reports, and the paths of these parts.

    An object without a required field is removed as a whole.
    """
    well_shaped, wrong = raw, set[str]()
    while shape and "spec" not in wrong:
        wrong |= {one.path.rpartition(".")[0] if one.rule == _REQUIRED else one.path for one in shape}
        well_shaped = _without(raw, wrong, "spec")
        shape = list(_check_shape(well_shaped, _SPEC, "spec"))
    return well_shaped, wrong


def _without(value: Any, wrong: set[str], path: str) -> Any:
    """`value`, located at `path`, without the values at the paths `wrong`.

    A list with a wrong item becomes empty.
    """
    if isinstance(value, dict):
        parts = {key: f"{path}.{key}" for key in value}
        return {key: _without(value[key], wrong, where) for key, where in parts.items() if where not in wrong}
    if isinstance(value, list):
        places = [f"{path}[{index}]" for index in range(len(value))]
        return [] if wrong & set(places) else [_without(*pair) for pair in zip(value, [wrong] * len(value), places)]
    return value


def _depends(path: str, wrong: set[str]) -> bool:
    """Whether a problem at `path` may be caused by a part that was removed."""
    parent, _, key = path.rpartition(".")
    if {f"{parent}.{other}" for other in _LOOKED_AT.get(key, ())} & wrong:
        return True
    for prefix, others in _LOOKED_AT_ELSEWHERE.items():
        if path.startswith(prefix) and any(part.startswith(others) for part in wrong):
            return True
    within = (f"{path}.", f"{path}[")
    # The rule about runFlux belongs to the list; other fields of the containers do not affect it.
    own = [part for part in wrong if not part.startswith("spec.containers[") or part.endswith((".runFlux", "]"))]
    return any(path == part or path.startswith((f"{part}.", f"{part}[")) for part in wrong) or any(
        part.startswith(within) for part in (own if path == "spec.containers" else wrong)
    )


def _without_nulls(value: Any) -> Any:
    """Remove null fields, as the API server does. Quantities become text."""
    if isinstance(value, dict):
        return {
            key: {name: str(one) for name, one in item.items() if one is not None}
            if key in ("limits", "requests", "resources") and isinstance(item, dict) and _is_flat(item)
            else _without_nulls(item)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _is_flat(item: dict[str, Any]) -> bool:
    return not any(isinstance(one, dict) for one in item.values())


# --- rules


def _check_name(name: str, size: int) -> Iterator[Problem]:
    if not LABEL.match(name) or not name[0].isalpha():
        yield Problem("metadata.name", f"{name!r} cannot name hosts: {LABEL_RULE}; the first must be a letter")
    longest = len(name) + 1 + len(str(max(size, 1) - 1))
    if longest > _HOST_LIMIT:
        rule = (
            f"host names such as {name}-{max(size, 1) - 1} would have {longest} characters, at most {_HOST_LIMIT} fit"
        )
        yield Problem("metadata.name", rule)


def _check_name_is_free(name: str, containers: list[Container]) -> Iterator[Problem]:
    for index, one in enumerate(containers):
        if one.name == name and not one.run_flux and len(containers) > 1:
            rule = f"{name!r} is the name of the container that runs Flux, choose another"
            yield Problem(f"spec.containers[{index}].name", rule)


def _check_rules(spec: Spec) -> Iterator[Problem]:
    yield from check_comparisons(spec, "spec")
    yield from check_hosts(spec)
    yield from _check_roles(spec)
    for index, container in enumerate(spec.containers):
        path = f"spec.containers[{index}]"
        yield from _check_container(container, path, named=not _runs_flux(container, spec))
        if _runs_flux(container, spec) and container.batch and not _has_jobs(container):
            yield Problem(f"{path}.command", "is required with batch: the lines to submit")
    for index, service in enumerate(spec.services):
        path = f"spec.services[{index}]"
        yield from _check_container(service, path)
        if not service.name:
            yield Problem(f"{path}.name", "is required for a service")
        commands = service.commands
        if commands and any(getattr(commands, one) for one in ("pre", "broker_pre", "worker_pre")):
            yield Problem(f"{path}.commands", "a service runs its image's own entry point and takes no commands")
    yield from _check_flux(spec)


def _runs_flux(container: Container, spec: Spec) -> bool:
    return container.run_flux or len(spec.containers) == 1


def _has_jobs(container: Container) -> bool:
    """Whether the command of a batch submits anything."""
    return bool(container.command if container.batch_raw else list(job_lines(container.command)))


def _check_roles(spec: Spec) -> Iterator[Problem]:
    if not spec.containers:
        yield Problem("spec.containers", "must name at least one container, the one that runs Flux")
    for index, one in enumerate(spec.containers):
        if len(spec.containers) > 1 and not one.run_flux and not one.name:
            yield Problem(f"spec.containers[{index}].name", "is required for a container beside the one that runs Flux")
        elif one.commands and one.commands.script and one.command and _runs_flux(one, spec):
            yield Problem(f"spec.containers[{index}].command", "cannot be combined with commands.script")
    for path, group in (("spec.containers", spec.containers), ("spec.services", spec.services)):
        first: dict[str, int] = {}
        for index, one in enumerate(group):
            if group is spec.containers and _runs_flux(one, spec):
                continue  # its container has the MiniCluster's name
            if one.name and one.name in first:
                yield Problem(f"{path}[{index}].name", f"{one.name!r} is also the name of {path}[{first[one.name]}]")
            first.setdefault(one.name, index)


def _check_container(container: Container, path: str, named: bool = True) -> Iterator[Problem]:
    """The problems of a container. `named`: the container in the pod has the name that the file gives."""
    if named and container.name and not LABEL.match(container.name):
        yield Problem(f"{path}.name", f"{container.name!r} cannot name a container: {LABEL_RULE}")
    yield from check_variables(container.environment, f"{path}.environment")
    yield from check_variables(container.secrets, f"{path}.secrets")
    yield from check_comparisons(container, path)


def _check_flux(spec: Spec) -> Iterator[Problem]:
    if not spec.flux:
        return
    flux = spec.flux
    yield from check_comparisons(flux, "spec.flux")
    if flux.curve_cert:
        try:
            key_pair(flux.curve_cert)
        except ValueError as exc:
            yield Problem("spec.flux.curveCert", f"is not a certificate in the format of `flux keygen`: {exc}")
    if flux.broker_config:
        try:
            config_keys.check(given_config(flux.broker_config))
        except ConfigError as exc:
            yield Problem("spec.flux.brokerConfig", str(exc))
        except ValueError as exc:
            yield Problem("spec.flux.brokerConfig", f"not TOML: {exc}")
    try:
        # The topology is computed for each broker, so it is checked with at most 64 brokers, which find any error.
        Topology(min(max(spec.size, 1), 64), flux.topology or "kary:2")
    except TopologyError as exc:
        yield Problem("spec.flux.topology", str(exc).removeprefix(f"tbon.topo={flux.topology}: "))
    yield from check_variables(flux.environment, "spec.flux.environment")
    if flux.bursting:
        yield from _check_bursting(flux.bursting)


def _is_host(name: str) -> bool:
    """Whether a hostlist (RFC 29) with this text is one host with this name."""
    try:
        return list(Hostlist.parse(name, 1)) == [name]
    except ValueError:
        return False


def _check_bursting(bursting: Bursting) -> Iterator[Problem]:
    path = "spec.flux.bursting"
    yield from check_comparisons(bursting, path)
    for index, cluster in enumerate(bursting.clusters):
        if cluster.name and not LABEL.match(cluster.name):
            yield Problem(f"{path}.clusters[{index}].name", f"{cluster.name!r} cannot name hosts: {LABEL_RULE}")
    lead = bursting.lead_broker
    if lead:
        for field, name in (("address", lead.address), ("name", lead.name)):
            if name and not _is_host(name):
                yield Problem(f"{path}.leadBroker.{field}", f"{name!r} is not a valid host name")
