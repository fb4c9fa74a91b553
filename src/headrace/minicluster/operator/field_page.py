"""The page docs/user/minicluster-fields.md: each field with its type, default and sentence, made from `fields`.

`python -m headrace.minicluster.operator.field_page` prints it (`make install-files` writes it).
"""

from __future__ import annotations

import sys
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from ..api import fields
from ..api.field_docs import ADDED, DESCRIPTIONS
from ..api.fields import Record, Spec

_HEAD = """# Fields of a MiniCluster

Made by `make install-files` from `src/headrace/minicluster/`; `kubectl explain minicluster.spec` shows the same.

A default inside an object holds where that object is given. Objects of Kubernetes itself (resources, security contexts,
tolerations) have the fields of its own API. [The MiniCluster](minicluster.md) tells how one lives and what changes do
to it, [the differences](minicluster-differences.md) where its objects are not those of the Flux Operator.
"""
# Objects in the order of the page, with their titles.
_SECTIONS: tuple[tuple[type[Record], str], ...] = (
    (Spec, "spec"),
    (fields.Container, "A container: `containers[]`, `services[]`"),
    (fields.Commands, "`containers[].commands`: text for the shell"),
    (fields.Volume, "A volume: `containers[].volumes.NAME`"),
    (fields.SecretKey, "`containers[].secrets.VARIABLE`"),
    (fields.LifeCycle, "`containers[].lifeCycle`"),
    (fields.Flux, "`flux`"),
    (fields.View, "`flux.container`: the container that brings Flux"),
    (fields.SchedulerOptions, "`flux.scheduler`"),
    (fields.Bursting, "`flux.bursting`"),
    (fields.BurstCluster, "`flux.bursting.clusters[]`"),
    (fields.LeadBroker, "`flux.bursting.leadBroker`"),
    (fields.Logging, "`logging`"),
    (fields.Network, "`network`"),
    (fields.Archive, "`archive`"),
    (fields.Pod, "`pod`, `groups[].pod`: the template of the pods"),
    (fields.Group, "`groups[]`"),
    (fields.Autoscale, "`autoscale`"),
    (fields.PodFailurePolicy, "`podFailurePolicy`"),
    (fields.PodFailureRule, "`podFailurePolicy.rules[]`"),
    (fields.ExitCodes, "`podFailurePolicy.rules[].onExitCodes`"),
    (fields.PodCondition, "`podFailurePolicy.rules[].onPodConditions[]`"),
)


def page() -> str:
    """The whole page, in Markdown."""
    return _HEAD + "".join(_section(record, title) for record, title in _SECTIONS)


def _section(record: type[Record], title: str) -> str:
    hints = get_type_hints(record, include_extras=True)
    rows = [f"\n## {title}\n\n| field | type | default | |\n|---|---|---|---|\n"]
    for one in msgspec.structs.fields(record):
        given = one.default if one.default_factory is msgspec.NODEFAULT and not one.required else None
        shown = str(given).lower() if isinstance(given, bool) else given
        default = "required" if one.required else f"`{shown}`" if given or given is False else ""
        name = f"{record.__name__}.{one.encode_name}"
        text = DESCRIPTIONS[name] + (" *(not in the Flux Operator)*" if name in ADDED else "")
        rows.append(f"| `{one.encode_name}` | {_type(hints[one.name])} | {default} | {text} |\n")
    return "".join(rows)


def _type(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (UnionType, Union):
        return _type(next(one for one in get_args(hint) if one is not NoneType))
    if origin is Annotated:
        kind, mark = get_args(hint)
        if mark.title == "quantity":
            return "quantity"
        bounds = mark.extra_json_schema or {}
        if "enum" in bounds:
            return ", ".join(one for one in bounds["enum"] if one)
        limits = [
            f"{bounds[key]} or {word}" for key, word in (("minimum", "more"), ("maximum", "less")) if key in bounds
        ]
        return " ".join([_type(kind), *([f"({', '.join(limits)})"] if limits else [])])
    if origin is list:
        return f"list of {_type(get_args(hint)[0])}"
    if origin is dict:
        return f"map of {_type(get_args(hint)[1])}"
    names: dict[Any, str] = {int: "number", bool: "true or false", str: "text"}
    return names.get(hint, "object")


if __name__ == "__main__":
    sys.stdout.write(page())
