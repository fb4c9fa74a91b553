"""Renders charts: by the few words that our templates use, and by Helm itself where it is there."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubecluster import build
from kubecluster.errors import KubeError

Object = dict[str, Any]


def written(files: Mapping[str, str], folder: Path) -> Path:
    """A folder with the files of a chart."""
    for name, text in files.items():
        path = folder / "chart" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def lookup(path: str, scope: Any, here: Any) -> Any:
    """The value of `$.A.B` in `scope`, or of `.` here."""
    if path == ".":
        return here
    for word in path.removeprefix("$.").split("."):
        scope = scope[word]
    return scope


def shown(expression: str, scope: Any, here: Any) -> str:
    words = expression.split()
    value = lookup(words[-1], scope, here)
    if words[0] == "toJson":
        return json.dumps(value)
    return ",".join(value) if words[0] == "join" else str(value)


def rendered(lines: Iterator[str], scope: Any, here: Any = None) -> Iterator[str]:
    """What Helm makes of lines up to the `end` or `else` of their block: if, if not, else, range, and values."""
    for line in lines:
        action = re.fullmatch(r"\{\{- (if not|if|range|else|end) ?(\S*) \}\}", line)
        if not action:
            yield re.sub(r"\{\{ (.+?) \}\}", lambda found: shown(found[1], scope, here), line)
        elif action[1] in ("else", "end"):
            return
        else:
            yield from block(action[1], lookup(action[2], scope, here), lines, scope, here)


def block(kind: str, value: Any, lines: Iterator[str], scope: Any, here: Any) -> Iterator[str]:
    """A whole block, whose lines are read to their end."""
    parts: tuple[list[str], list[str]] = ([], [])
    depth, into = 1, parts[0]
    for line in lines:
        depth += bool(re.match(r"\{\{- (if|range) ", line)) - (line == "{{- end }}")
        if depth == 0:
            break
        if depth == 1 and line == "{{- else }}":
            into = parts[1]
        else:
            into.append(line)
    if kind == "range":
        for one in value:
            yield from rendered(iter(parts[0]), scope, one)
    else:
        yield from rendered(iter(parts[bool(value) == (kind == "if not")]), scope, here)


def by_these_words(files: Mapping[str, str], values: Object, namespace: str) -> list[Object]:
    scope = {"Values": values, "Release": {"Namespace": namespace}}
    texts = [text for name, text in files.items() if name.startswith("templates/")]
    whole = ["\n".join(rendered(iter(text.splitlines()), scope)) for text in texts]
    return [one for text in whole for one in yaml.safe_load_all(text) if one]


def program() -> str:
    """Helm, or a skip with the reason."""
    # A machine without Go has none that was built.
    with contextlib.suppress(KubeError):
        if build.is_built("helm"):
            return build.program("helm", "helm")
    found = shutil.which("helm")
    if not found:
        pytest.skip("Helm is not there: `tools/kube/kube build helm`")
    return found


def by_helm(values: Object, namespace: str, folder: Path) -> list[Object]:
    (folder / "chosen.yaml").write_text(json.dumps(values))
    line = [program(), "template", "x", str(folder / "chart"), "-n", namespace, "-f", str(folder / "chosen.yaml")]
    done = subprocess.run([*line, "--kube-version", "1.34.0"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def named(found: list[Object]) -> dict[tuple[str, str, str], Object]:
    return {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in found}
