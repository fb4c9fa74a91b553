"""Install files as texts: a kustomize base of objects, and the line that says how a file is made. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .yaml_text import yaml_text


def kustomization(parts: Mapping[str, list[dict[str, Any]]], source: str) -> dict[str, str]:
    """The files of a kustomize base, of which `parts` has the objects by file: text by path."""
    head: dict[str, Any] = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    files = {"kustomization.yaml": [{**head, "resources": list(parts)}], **parts}
    return {name: marked(name, source, yaml_text(found)) for name, found in files.items()}


def marked(path: str, source: str, text: str) -> str:
    """A text that says how it is made. JSON has no comments."""
    return text if path.endswith(".json") else f"# Made by `make install-files` from {source}.\n{text}"
