"""Kubernetes objects as YAML that means the same in YAML 1.1 and 1.2."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

_PLAIN = re.compile(r"[A-Za-z/][-A-Za-z0-9_./]*\Z")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, value: str) -> Any:
    # Text that a YAML parser could read as a number, a date or a boolean is quoted.
    style = None if _PLAIN.match(value) and value.lower() not in _WORDS else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(objects: Iterable[dict[str, Any]]) -> str:
    """The objects as YAML documents, each after a line `---`."""
    return "".join(
        "---\n" + str(yaml.dump(one, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True))
        for one in objects
    )
