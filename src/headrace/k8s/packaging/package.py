"""The files that install a program, from one description. Pure.

They are an install file, a kustomize base and a Helm chart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec import Struct

from .helm_templates import Placeholders, Switches, Value, chart_file, either, kept, schema, template, values_text
from .yaml_text import yaml_text

Object = dict[str, Any]
Install = TypeVar("Install", bound=Struct)


class File(NamedTuple):
    """The objects of the file `NAME.yaml`, which `build` makes from an install's options.

    In the chart, `switches` select variants; with `value`, the file is empty unless that value is true. The namespace
    has no file in a chart, since Helm creates it (`in_chart`).
    """

    name: str
    build: Callable[[Any], list[Object]]
    switches: Switches = ()
    value: str = ""
    in_chart: bool = True


class Package(Struct, Generic[Install], frozen=True, kw_only=True):
    """How a program is installed.

    `files` are in the order in which their objects are applied. `source` is the path of the file with this description;
    generated files name it. `templated` is an install with placeholders for the chart's `values`. `rules` are the parts
    of the chart's schema that relate values to each other.
    """

    name: str
    description: str
    source: str
    defaults: Install
    files: Sequence[File]
    values: Sequence[Value]
    templated: Install
    placeholders: Placeholders
    rules: Sequence[Object] = ()

    def objects(self, install: Install) -> list[Object]:
        """All objects in the order in which they are applied."""
        return [one for file in self.files for one in file.build(install)]

    def install_file(self, install: Install | None = None) -> str:
        """All objects as a text for `kubectl apply --server-side -f`; the default install without `install`."""
        return self.marked("", yaml_text(self.objects(install or self.defaults)))

    def kustomize_base(self) -> dict[str, str]:
        """The files of the kustomize base, with the parts that are on by default: text by path."""
        parts = {f"{one.name}.yaml": found for one in self.files if (found := one.build(self.defaults))}
        head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": list(parts)}
        return self.kustomize_files({"kustomization.yaml": [head], **parts})

    def kustomize_files(self, parts: Mapping[str, list[Object]]) -> dict[str, str]:
        """The texts of files with objects, by path."""
        return {path: self.marked(path, yaml_text(found)) for path, found in parts.items()}

    def chart(self) -> dict[str, str]:
        """The files of the Helm chart: text by path."""
        files = {
            "Chart.yaml": chart_file(self.name, self.description),
            "values.yaml": values_text(self.values),
            "values.schema.json": json.dumps(self.values_schema(), indent=2) + "\n",
            **{f"templates/{one.name}.yaml": self._template(one) for one in self.files if one.in_chart},
        }
        return {path: self.marked(path, text) for path, text in files.items()}

    def values_schema(self) -> Object:
        return schema(self.name, self.values, self.rules)

    def _template(self, file: File) -> str:
        def build(install: Install) -> list[Object]:
            return [kept(one) if one["kind"] == "CustomResourceDefinition" else one for one in file.build(install)]

        text = template(self.templated, build, file.switches, self.placeholders)
        return either(file.value, text, "") if file.value else text

    def marked(self, path: str, text: str) -> str:
        """The text with a comment on how it was generated, except for JSON, which has no comments."""
        return text if path.endswith(".json") else f"# Made by `make install-files` from {self.source}.\n{text}"
