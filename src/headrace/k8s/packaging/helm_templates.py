"""Helm charts as texts, made from the objects that a program's install declares. Pure.

Where a value is chosen at install time, the objects have a placeholder, which is replaced after the objects have become
YAML; so objects and templates have one source. Values, their schema (JSON Schema, draft 7) and the comments of
`values.yaml` are one table. Source: the chart format of Helm 3 (`apiVersion` v2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher
from itertools import product
from typing import Any, NamedTuple, TypeVar

import msgspec

from headrace import __version__

from .yaml_text import yaml_text

Object = dict[str, Any]
Made = TypeVar("Made", bound=msgspec.Struct)
# Templates put texts between double quotes, where a quote, a backslash or a line end would need escaping. No name,
# image or address contains one.
UNQUOTED = r'[^"\\\s]'
NAMES: Object = {"type": "array", "uniqueItems": True, "items": {"type": "string", "pattern": r'^[^",\\\s]+$'}}
NAME: Object = {"type": "string", "pattern": f"^{UNQUOTED}+$"}
SWITCH: Object = {"type": "boolean"}
OPTIONAL_NAME: Object = {"type": "string", "pattern": f"^{UNQUOTED}*$"}
# Conditions of a chart, each with the fields of an install if it is true, and the fields if it is false.
Switches = tuple[tuple[str, dict[str, Any], dict[str, Any]], ...]


class Value(NamedTuple):
    """A value of the chart: its name ("webhook.enabled"), default, JSON schema, and description."""

    name: str
    default: Any
    schema: Object
    comment: str


class Placeholders(NamedTuple):
    """Placeholders in objects, for values.

    `words` map texts, as they appear in YAML, to the template text that replaces them. `optional` are arguments of a
    program that are present only if the value is set. `lists` are repeated for each value of a list: an argument, or an
    object whose namespace is the placeholder.
    """

    words: Mapping[str, str]
    optional: Mapping[str, str]
    lists: Mapping[str, str]


def chart_version(version: str) -> str:
    """A version of PEP 440 in the format of charts (SemVer 2): `1.2.0.dev3` becomes `1.2.0-dev.3`."""
    return re.sub(r"\.?(a|b|rc|dev)(\d+)$", r"-\1.\2", version)


def chart_file(name: str, description: str) -> str:
    """The text of `Chart.yaml`."""
    chart = {
        **{"apiVersion": "v2", "name": name, "version": chart_version(__version__), "appVersion": __version__},
        **{"type": "application", "description": description, "kubeVersion": ">=1.30.0-0"},
    }
    return yaml_text([chart])


def schema(name: str, values: Iterable[Value], rules: Iterable[Object] = ()) -> Object:
    """The JSON schema of the values, with `rules` that relate values to each other.

    `global` is allowed, for charts that include this one.
    """
    found = _closed({"global": {"type": "object"}})
    for one in values:
        *parents, last = one.name.split(".")
        inside = found
        for parent in parents:
            inside = inside["properties"].setdefault(parent, _closed({}))
        inside["properties"][last] = {**one.schema, "description": one.comment, "default": one.default}
    more = {"allOf": list(rules)} if rules else {}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": name, **found, **more}


def _closed(properties: Object) -> Object:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def values_text(values: Iterable[Value]) -> str:
    """The text of `values.yaml`."""
    lines: list[str] = []
    group = ""
    for one in values:
        parent, _, name = one.name.rpartition(".")
        indent = "  " if parent else ""
        lines += [f"{parent}:"] if parent != group else []
        lines += [f"{indent}# {one.comment}", f"{indent}{name}: {json.dumps(one.default)}"]
        group = parent
    return "".join(f"{line}\n" for line in lines)


def kept(definition: Object) -> Object:
    """A CustomResourceDefinition that Helm keeps, with all objects of its kind, when the chart is removed."""
    meta = {**definition["metadata"], "annotations": {"helm.sh/resource-policy": "keep"}}
    return {**definition, "metadata": meta}


def template(
    templated: Made, build: Callable[[Made], list[Object]], switches: Switches, placeholders: Placeholders
) -> str:
    """The template of the objects that `build` makes from an install with placeholders.

    It has the variants that the chart's values select through `switches`.
    """
    conditions = [condition for condition, _, _ in switches]
    texts: dict[tuple[bool, ...], dict[str, str]] = {}
    for chosen in product((True, False), repeat=len(switches)):
        install = templated
        for (_, held, not_held), holds in zip(switches, chosen):
            install = msgspec.structs.replace(install, **(held if holds else not_held))
        made = build(install)
        texts[chosen] = {f"{one['kind']}/{one['metadata']['name']}": _worded(one, placeholders) for one in made}
    names = dict.fromkeys(name for found in texts.values() for name in found)
    return "".join(_chosen({key: found.get(name, "") for key, found in texts.items()}, conditions) for name in names)


def _worded(one: Object, placeholders: Placeholders) -> str:
    """An object as YAML with placeholders replaced.

    An object whose namespace is a list placeholder is repeated for each namespace.
    """
    text = yaml_text([one])
    for word, value in placeholders.words.items():
        text = text.replace(word, value)
    for argument, value in placeholders.optional.items():
        text = _around(f'- "{argument}"', f"if {value}", text)
    for word, values in placeholders.lists.items():
        text = _around(f'- "{word}"', f"range {values}", text)
        repeated = one["metadata"].get("namespace") == word
        text = text.replace(word, "{{ . }}")
        text = f"{{{{- range {values} }}}}\n{text}{{{{- end }}}}\n" if repeated else text
    return text


def _around(line: str, action: str, text: str) -> str:
    """The text with a template action around each line that is `line`."""
    found = re.compile(rf"^ *{re.escape(line)}\n", re.MULTILINE)
    return found.sub(lambda one: f"{{{{- {action} }}}}\n{one[0]}{{{{- end }}}}\n", text)


def _chosen(variants: dict[tuple[bool, ...], str], conditions: list[str]) -> str:
    """A text with template conditions that selects one of `variants` for each combination of `conditions`."""
    if not conditions:
        return variants[()]
    held, not_held = (
        _chosen({key[1:]: text for key, text in variants.items() if key[0] is holds}, conditions[1:])
        for holds in (True, False)
    )
    return _merged(conditions[0], held, not_held)


def _merged(condition: str, held: str, not_held: str) -> str:
    """A text that yields `held` or `not_held`, depending on a condition.

    Lines common to both are written once, unless that would separate a template action from its end.
    """
    first, second = held.splitlines(keepends=True), not_held.splitlines(keepends=True)
    if not (first and second):
        return either(condition, held, not_held)
    parts = []
    for _, begin, end, other_begin, other_end in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        ours, theirs = first[begin:end], second[other_begin:other_end]
        if ours != theirs and not (_is_balanced(ours) and _is_balanced(theirs)):
            return either(condition, held, not_held)
        parts.append(either(condition, "".join(ours), "".join(theirs)))
    return "".join(parts)


def _is_balanced(lines: list[str]) -> bool:
    """True if the lines contain the end of each template action that begins in them, and no other end."""
    depth = 0
    for line in lines:
        if line.startswith(("{{- if ", "{{- range ")):
            depth += 1
        elif line.startswith("{{- end "):
            depth -= 1
        elif line.startswith("{{- else ") and not depth:
            return False
        if depth < 0:
            return False
    return depth == 0


def either(condition: str, held: str, not_held: str) -> str:
    """The text that yields `held` if a condition is true, else `not_held`."""
    if held == not_held:
        return held
    if not held:
        return either(f"not {condition}", not_held, "")
    otherwise = "{{- else }}\n" + not_held if not_held else ""
    return f"{{{{- if {condition} }}}}\n{held}{otherwise}{{{{- end }}}}\n"
