"""Prints the page docs/user/minicluster-fields.md: each field of a MiniCluster with its type, default and text.

`make install-files` writes it.
"""

from __future__ import annotations

import sys

from headrace.minicluster.api import fields
from headrace.minicluster.api.declarations import Bounds, FieldType, Format, OneOf, Support, fields_of
from headrace.minicluster.api.fields import Record, Spec

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
    rows = [f"\n## {title}\n\n| field | type | default | |\n|---|---|---|---|\n"]
    for one in fields_of(record).values():
        shown = str(one.default).lower() if isinstance(one.default, bool) else one.default
        given = one.constant and (one.default or one.default is False)
        default = "required" if one.required else f"`{shown}`" if given else ""
        text = one.text + (f" *({Support.ADDED.value})*" if one.is_marked(Support.ADDED) else "")
        rows.append(f"| `{one.name}` | {_type(one.type)} | {default} | {text} |\n")
    return "".join(rows)


def _type(kind: FieldType) -> str:
    if Format.QUANTITY in kind.marks:
        return "quantity"
    if kind.item:
        return f"{'list' if kind.kind is list else 'map'} of {_type(kind.item)}"
    choices, bounds = kind.mark(OneOf), kind.mark(Bounds)
    if choices:
        return ", ".join(choices.choices)
    name = {int: "number", bool: "true or false", str: "text"}.get(kind.kind, "object")
    if not bounds:
        return name
    return f"{name} ({bounds.least} or more{'' if bounds.most is None else f', {bounds.most} or less'})"


if __name__ == "__main__":
    sys.stdout.write(page())
