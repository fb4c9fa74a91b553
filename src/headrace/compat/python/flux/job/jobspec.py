"""Job specifications (RFC 14, 25) as objects with properties."""

from __future__ import annotations

import collections
import json
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from headrace.spec import duration as durations
from headrace.spec import jobspec as specs
from headrace.spec import jobspec_build


class Jobspec:
    """Resources, tasks and attributes of a job."""

    def __init__(self, resources: Any, tasks: Any, attributes: Any = None, version: int = 1) -> None:
        self.jobspec: Dict[str, Any] = {
            "resources": resources,
            "tasks": tasks,
            "attributes": attributes if attributes is not None else {"system": {"duration": 0}},
            "version": version,
        }

    @classmethod
    def _of(cls, obj: Dict[str, Any]) -> Any:
        self = cls.__new__(cls)
        self.jobspec = obj
        return self

    @classmethod
    def from_yaml_stream(cls, stream: Any) -> Any:
        """Read JSON, or YAML where PyYAML is installed."""
        text = stream if isinstance(stream, str) else stream.read()
        try:
            return cls._of(json.loads(text))
        except ValueError:
            import yaml

            return cls._of(yaml.safe_load(text))

    @classmethod
    def from_yaml_file(cls, filename: str) -> Any:
        with open(filename, encoding="utf-8") as stream:
            return cls.from_yaml_stream(stream)

    def dumps(self, **kwargs: Any) -> str:
        return json.dumps(self.jobspec, **kwargs)

    @property
    def resources(self) -> Any:
        return self.jobspec["resources"]

    @property
    def tasks(self) -> Any:
        return self.jobspec["tasks"]

    @property
    def attributes(self) -> Any:
        return self.jobspec["attributes"]

    @property
    def version(self) -> int:
        return int(self.jobspec["version"])

    @property
    def system(self) -> Dict[str, Any]:
        system: Dict[str, Any] = self.attributes.setdefault("system", {})
        return system

    def setattr(self, key: str, value: Any) -> None:
        jobspec_build.set_attribute(self.jobspec, key, value)

    def getattr(self, key: str) -> Any:
        """An attribute by dotted key, below `system` unless it begins with `user.`, `system.` or `attributes.`."""
        parts = key.split(".")
        if parts[0] == "attributes":
            parts = parts[1:]
        elif parts[0] not in ("user", "system"):
            parts = ["system", *parts]
        here: Any = self.attributes
        for part in parts:
            here = here[part]
        return here

    def setattr_shell_option(self, key: str, value: Any) -> None:
        jobspec_build.set_shell_option(self.jobspec, key, value)

    def add_file(self, path: str, data: Any, perms: int = 0o600, encoding: Optional[str] = None) -> None:
        jobspec_build.add_file(self.jobspec, path, data, perms)

    @property
    def duration(self) -> float:
        """Time limit in seconds, 0 for none; takes numbers and Flux durations (`"10m"`)."""
        return float(self.system.get("duration", 0))

    @duration.setter
    def duration(self, value: Union[int, float, str, Any]) -> None:
        if hasattr(value, "total_seconds"):
            value = value.total_seconds()
        seconds = durations.parse(value) if isinstance(value, str) else float(value)
        if seconds < 0:
            raise ValueError("duration must not be negative")
        self.system["duration"] = seconds

    def _output_path(self, stream: str) -> Optional[str]:
        options = self.system.get("shell", {}).get("options", {})
        return options.get("output", {}).get(stream, {}).get("path")  # type: ignore[no-any-return]

    def _set_output_path(self, stream: str, path: Any) -> None:
        self.setattr_shell_option(f"output.{stream}.type", "file")
        self.setattr_shell_option(f"output.{stream}.path", os.fspath(path))

    @property
    def unbuffered(self) -> bool:
        options = self.system.get("shell", {}).get("options", {}).get("output", {})
        return bool(options.get("stdout", {}).get("buffer", {}).get("type") == "none")

    @unbuffered.setter
    def unbuffered(self, value: bool) -> None:
        if value:
            for stream in ("stdout", "stderr"):
                self.setattr_shell_option(f"output.{stream}.buffer.type", "none")

    def resource_walk(self) -> Iterator[Tuple[Any, Dict[str, Any], int]]:
        """(parent, vertex, total count) of every vertex, parents first."""

        def walk(parent: Any, vertices: List[Dict[str, Any]], factor: int) -> Iterator[Tuple[Any, Dict[str, Any], int]]:
            for vertex in vertices:
                count = factor * specs.smallest_count(vertex["count"])
                yield parent, vertex, count
                yield from walk(vertex, vertex.get("with", []), count)

        return walk(None, self.resources, 1)

    def resource_counts(self) -> Dict[str, int]:
        counts: Dict[str, int] = collections.defaultdict(int)
        for _parent, vertex, count in self.resource_walk():
            counts[vertex["type"]] += count
        return counts


def _path_property(stream: str) -> property:
    def read(self: Jobspec) -> Optional[str]:
        return self._output_path(stream)

    def write(self: Jobspec, path: Any) -> None:
        self._set_output_path(stream, path)

    return property(read, write)


def _input_property() -> property:
    def read(self: Jobspec) -> Optional[str]:
        options = self.system.get("shell", {}).get("options", {})
        return options.get("input", {}).get("stdin", {}).get("path")  # type: ignore[no-any-return]

    def write(self: Jobspec, path: Any) -> None:
        self.setattr_shell_option("input.stdin.type", "file")
        self.setattr_shell_option("input.stdin.path", os.fspath(path))

    return property(read, write)


def _system_property(name: str, convert: Callable[[Any], Any] = str) -> property:
    def read(self: Jobspec) -> Any:
        return self.system.get(name)

    def write(self: Jobspec, value: Any) -> None:
        self.system[name] = convert(value)

    return property(read, write)


def _environment(value: Any) -> Dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("environment must be a mapping")
    return {str(name): str(setting) for name, setting in value.items()}


for _name, _property in {
    "stdout": _path_property("stdout"),
    "output": _path_property("stdout"),
    "stderr": _path_property("stderr"),
    "error": _path_property("stderr"),
    "stdin": _input_property(),
    "input": _input_property(),
    "cwd": _system_property("cwd", os.fspath),
    "queue": _system_property("queue"),
    "bank": _system_property("bank"),
    "environment": _system_property("environment", _environment),
}.items():
    setattr(Jobspec, _name, _property)


class JobspecV1(Jobspec):
    """Version 1 job specifications and their builders; wrong arguments raise ValueError or TypeError."""

    @classmethod
    def _finish(cls, obj: Dict[str, Any], more: Dict[str, Any]) -> Any:
        self = cls._of(obj)
        environment = more.pop("environment", None)
        self.environment = os.environ if environment is None else environment
        if more.pop("unbuffered", False):
            self.unbuffered = True
        if more.pop("label_io", False):
            for stream in ("stdout", "stderr"):
                self.setattr_shell_option(f"output.{stream}.label", True)
        name = more.pop("name", None)
        if name is not None:
            self.setattr("job.name", name)
        for key, value in more.items():
            if value is not None:
                setattr(self, "stdin" if key == "input" else key, value)
        return self

    @classmethod
    def from_command(
        cls,
        command: List[str],
        num_tasks: int = 1,
        cores_per_task: int = 1,
        gpus_per_task: Optional[int] = None,
        num_nodes: Optional[int] = None,
        exclusive: bool = False,
        **more: Any,
    ) -> Any:
        """A job of `num_tasks` tasks of `command`."""
        obj = jobspec_build.from_command(
            command,
            num_tasks=num_tasks,
            cores_per_task=cores_per_task,
            gpus_per_task=gpus_per_task,
            num_nodes=num_nodes,
            exclusive=exclusive,
        )
        return cls._finish(obj, more)

    @classmethod
    def per_resource(cls, command: List[str], **arguments: Any) -> Any:
        more = {key: arguments.pop(key) for key in _MORE if key in arguments}
        return cls._finish(jobspec_build.per_resource(command, **arguments), more)

    @classmethod
    def from_batch_command(cls, script: str, jobname: str, **arguments: Any) -> Any:
        more = {key: arguments.pop(key) for key in _MORE if key in arguments}
        return cls._finish(jobspec_build.from_batch_command(script, jobname, **arguments), more)

    @classmethod
    def from_nest_command(cls, command: List[str], **arguments: Any) -> Any:
        more = {key: arguments.pop(key) for key in _MORE if key in arguments}
        return cls._finish(jobspec_build.from_nest_command(command, **arguments), more)


_MORE = (
    "duration",
    "environment",
    "cwd",
    "name",
    "input",
    "output",
    "error",
    "stdout",
    "stderr",
    "label_io",
    "unbuffered",
    "queue",
    "bank",
)


def validate_jobspec(jobspec: Union[str, Dict[str, Any]], require_version: Optional[int] = None) -> Any:
    """Check a job specification; ValueError names the field."""
    obj = json.loads(jobspec) if isinstance(jobspec, str) else jobspec
    specs.validate(obj, require_version)
    return Jobspec._of(obj)
