"""Job specifications (RFC 14, 25) as objects with properties."""

from __future__ import annotations

import collections
import collections.abc
import datetime
import errno
import json
import math
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from flux.job import submit_options
from headrace.formats.spec import archive, jobspec_build
from headrace.formats.spec import duration as durations
from headrace.formats.spec import jobspec as specs
from headrace.formats.spec.jobspec_validate import validate_canonical

J = TypeVar("J", bound="Jobspec")
V = TypeVar("V", bound="JobspecV1")

# The shell options of `unbuffered`: the seconds for which a shell collects output and input.
_BATCH = {"output.batch-timeout": 0.05, "input.batch-timeout": 0.0}


class Jobspec:
    """Resources, tasks and attributes of a job.

    Values that RFC 14 does not allow raise ValueError or TypeError. A jobspec of this class may go beyond version 1
    (RFC 25) whatever its version number; JobspecV1 and `validate_jobspec` check version 1.
    """

    def __init__(self, resources: Any, tasks: Any, attributes: Any, version: int) -> None:
        self.jobspec: Dict[str, Any] = {
            "resources": resources,
            "tasks": tasks,
            "attributes": attributes,
            "version": version,
        }
        self._check(self.jobspec)

    # Validates a decoded jobspec for this class. Raises ValueError.
    _check = staticmethod(validate_canonical)

    @classmethod
    def _of(cls: type[J], obj: Any) -> J:
        """A jobspec from a decoded object. Raises ValueError, TypeError."""
        if not isinstance(obj, dict):
            raise TypeError(f"a jobspec is a mapping, not {type(obj).__name__}")
        cls._check(obj)
        return cls(**obj)

    @classmethod
    def from_yaml_stream(cls: type[J], yaml_stream: Any) -> J:
        """Read JSON, or YAML if PyYAML is installed, from text or a file."""
        text = yaml_stream if isinstance(yaml_stream, (str, bytes)) else yaml_stream.read()
        try:
            obj = json.loads(text)
        except ValueError:
            import yaml

            obj = yaml.safe_load(text)
        return cls._of(obj)

    @classmethod
    def from_yaml_file(cls: type[J], filename: Any) -> J:
        with open(filename, "rb") as stream:
            return cls.from_yaml_stream(stream)

    def dumps(self, **kwargs: Any) -> str:
        """The jobspec as JSON; values of environment variables are converted to text."""
        kwargs.setdefault("ensure_ascii", False)
        jobspec, environment = self.jobspec, self.environment
        if environment is not None:
            texts = {name: None if value is None else str(value) for name, value in environment.items()}
            if texts != environment or not isinstance(environment, dict):
                attributes = {**self.attributes, "system": {**self.attributes["system"], "environment": texts}}
                jobspec = {**jobspec, "attributes": attributes}
        return json.dumps(jobspec, **kwargs)

    def __str__(self) -> str:
        return str(self.jobspec)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.resources}, {self.tasks}, "
            f"attributes={self.attributes}, version={self.version})"
        )

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

    def setattr(self, key: str, val: Any) -> None:
        """Set an attribute by dotted key, with `getattr`'s rules.

        Raises TypeError if its path has a non-object.
        """
        try:
            jobspec_build.set_attribute(self.jobspec, key, val)
        except ValueError as exc:
            raise TypeError(f"failed to set {key} to {val}: {exc}") from None

    def getattr(self, key: str) -> Any:
        """An attribute by dotted key.

        The key is below `system` unless it begins with `user.`, `system.` or `attributes.`. Raises KeyError.
        """
        parts = key.split(".")
        if parts[0] == "attributes":
            parts = parts[1:]
        elif parts[0] not in ("user", "system"):
            parts = ["system", *parts]
        here: Any = self.attributes
        for part in parts:
            here = here.get(part) if isinstance(here, collections.abc.Mapping) else None
            if here is None:
                raise KeyError(key)
        return here

    def _get(self, key: str) -> Any:
        try:
            return self.getattr(key)
        except KeyError:
            return None

    def setattr_shell_option(self, key: str, val: Any) -> None:
        self.setattr("system.shell.options." + key, val)

    def add_file(
        self,
        path: str,
        data: Union[str, Mapping[str, Any]],
        perms: Optional[int] = None,
        encoding: Optional[str] = None,
    ) -> None:
        """Store a file (RFC 37) in the jobspec under the name `path`.

        A string of several lines, and any string with `encoding`, is the content; any other string is the path of a
        file to read. Raises TypeError, OSError.
        """
        if not isinstance(data, (str, collections.abc.Mapping)):
            raise TypeError("data must be a Mapping or string")
        if isinstance(data, str) and encoding is None and "\n" not in data:
            entry = archive.entry_from_path(data)
            if perms is not None:
                entry["mode"] = (entry["mode"] & ~0o7777) | perms
        else:
            content = data if isinstance(data, str) else dict(data)
            entry = archive.entry(content, 0o600 if perms is None else perms)
            if encoding is not None:
                entry["encoding"] = encoding
        self.attributes.setdefault("system", {}).setdefault("files", {})[path] = entry

    @property
    def duration(self) -> Any:
        """Time limit in seconds, 0 for none; accepts numbers, timedelta and Flux durations (`"10m"`)."""
        return self._get("system.duration")

    @duration.setter
    def duration(self, value: Union[float, str, datetime.timedelta]) -> None:
        if isinstance(value, str):
            seconds = durations.parse(value)
        elif isinstance(value, datetime.timedelta):
            seconds = value.total_seconds()
        elif isinstance(value, (int, float)):
            seconds = float(value)
        else:
            raise TypeError("duration must be an int, float, string, or timedelta")
        if seconds < 0:
            raise ValueError("duration must not be negative")
        if not math.isfinite(seconds):
            raise ValueError("duration must be a normal, finite value")
        self.setattr("system.duration", seconds)

    @property
    def queue(self) -> Any:
        return self._get("system.queue")

    @queue.setter
    def queue(self, queue: str) -> None:
        if not isinstance(queue, str):
            raise TypeError("queue must be a string")
        self.setattr("system.queue", queue)

    @property
    def cwd(self) -> Any:
        return self._get("system.cwd")

    @cwd.setter
    def cwd(self, cwd: Any) -> None:
        path = os.fspath(cwd) if isinstance(cwd, os.PathLike) else cwd
        if not isinstance(path, str):
            raise ValueError("cwd must be a string")
        self.setattr("system.cwd", path)

    @property
    def environment(self) -> Any:
        """The job's environment: the mapping object that was set, so that changes to it change the job."""
        return self._get("system.environment")

    @environment.setter
    def environment(self, environ: Mapping[str, Any]) -> None:
        if not isinstance(environ, collections.abc.Mapping):
            raise ValueError("environment must be a mapping")
        self.setattr("system.environment", environ)

    @property
    def unbuffered(self) -> bool:
        """True if the shell forwards standard output and error without collecting them."""
        return all(self._get(f"shell.options.output.{stream}.buffer.type") == "none" for stream in ("stdout", "stderr"))

    @unbuffered.setter
    def unbuffered(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError("unbuffered must be True or False")
        for stream in ("stdout", "stderr"):
            if value:
                self.setattr_shell_option(f"output.{stream}.buffer.type", "none")
            else:
                self._delete(f"output.{stream}.buffer")
        for key, seconds in _BATCH.items():
            if value:
                self.setattr_shell_option(key, seconds)
            elif self._get("shell.options." + key) == seconds:
                self._delete(key)

    def _delete(self, key: str) -> None:
        """Remove a shell option, and objects that become empty."""
        *way, last = key.split(".")
        here: Any = self._get("shell.options") or {}
        nodes = [here]
        for part in way:
            here = here.get(part, {})
            nodes.append(here)
        here.pop(last, None)
        for parent, part in reversed(list(zip(nodes, way))):
            if not parent.get(part, True):
                del parent[part]

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        """All vertices of the resources, parents first."""
        return (vertex for _parent, vertex, _count in self.resource_walk())

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
    """The path of a standard stream; None if it is not set."""

    def read(self: Jobspec) -> Any:
        return self._get(f"shell.options.{stream}.path")

    def write(self: Jobspec, path: Any) -> None:
        text = os.fspath(path) if isinstance(path, os.PathLike) else path
        if not isinstance(text, str):
            raise TypeError(f"The path must be a string or pathlib object, got {type(path).__name__}")
        self.setattr_shell_option(f"{stream}.type", "file")
        self.setattr_shell_option(f"{stream}.path", text)

    return property(read, write)


for _names, _stream in (
    (("stdin", "input"), "input.stdin"),
    (("stdout", "output"), "output.stdout"),
    (("stderr", "error"), "output.stderr"),
):
    for _name in _names:
        setattr(Jobspec, _name, _path_property(_stream))


class JobspecV1(Jobspec):
    """Version 1 job specifications and their builders; invalid arguments raise ValueError or TypeError."""

    _check = staticmethod(specs.validate)

    def __init__(self, resources: Any, tasks: Any, attributes: Any, version: int = 1) -> None:
        if version != 1:
            raise ValueError("version must be 1")
        super().__init__(resources, tasks, attributes, version)

    def _with(
        self: V,
        duration: Any = None,
        environment: Optional[Mapping[str, Any]] = None,
        env_expand: Optional[Mapping[str, str]] = None,
        cwd: Any = None,
        rlimits: Optional[Mapping[str, int]] = None,
        name: Optional[str] = None,
        input: Any = None,
        output: Any = None,
        error: Any = None,
        label_io: bool = False,
        unbuffered: bool = False,
        queue: Optional[str] = None,
        bank: Optional[str] = None,
    ) -> V:
        """Apply the arguments that all builders have; without `environment`, the job gets this process's."""
        self.environment = dict(os.environ) if environment is None else environment
        for option, what, mapping in (("env-expand", "env_expand", env_expand), ("rlimit", "rlimits", rlimits)):
            if mapping is not None:
                if not isinstance(mapping, collections.abc.Mapping):
                    raise ValueError(f"{what} must be a mapping")
                self.setattr_shell_option(option, dict(mapping))
        for field, value in (("duration", duration), ("cwd", cwd), ("input", input)):
            if value is not None:
                setattr(self, field, value)
        for field, stream, path in (("output", "stdout", output), ("error", "stderr", error)):
            # Without a file, output goes to the KVS. "none" and "kvs" mean the same.
            if path is not None and path not in ("none", "kvs"):
                setattr(self, field, path)
                if label_io:
                    self.setattr_shell_option(f"output.{stream}.label", True)
        if unbuffered:
            self.unbuffered = True
        for key, value in (("job.name", name), ("queue", queue), ("bank", bank)):
            if value is not None:
                self.setattr(key, value)
        return self

    @classmethod
    def from_command(
        cls: type[V],
        command: Sequence[str],
        num_tasks: int = 1,
        cores_per_task: int = 1,
        gpus_per_task: Optional[int] = None,
        num_nodes: Optional[int] = None,
        exclusive: bool = False,
        **more: Any,
    ) -> V:
        """A job of `num_tasks` tasks of `command`."""
        obj = jobspec_build.from_command(
            list(command) if isinstance(command, tuple) else command,
            num_tasks=num_tasks,
            cores_per_task=cores_per_task,
            gpus_per_task=gpus_per_task,
            num_nodes=num_nodes,
            exclusive=exclusive,
        )
        return cls(**obj)._with(**more)

    @classmethod
    def per_resource(
        cls: type[V],
        command: Sequence[str],
        ncores: Optional[int] = None,
        nnodes: Optional[int] = None,
        per_resource_type: Optional[str] = None,
        per_resource_count: Optional[int] = None,
        gpus_per_node: Optional[int] = None,
        exclusive: bool = False,
        **more: Any,
    ) -> V:
        """A job with a number of tasks on each of its nodes or cores."""
        if exclusive and nnodes is None:
            raise ValueError("exclusive can only be set with a node count")
        if nnodes is not None and ncores is None and not exclusive:
            raise ValueError("Specifying nnodes also requires ncores or exclusive")
        obj = jobspec_build.per_resource(
            command, ncores, nnodes, per_resource_type, per_resource_count, gpus_per_node, exclusive
        )
        return cls(**obj)._with(**more)

    @classmethod
    def from_batch_command(cls: type[V], script: str, jobname: str, *args: Any, **more: Any) -> V:
        """A job that is an instance running a batch script, whose text is stored in the jobspec."""
        size = {key: more.pop(key) for key in ("args", *submit_options.BUILDER_SIZE) if key in more}
        obj = jobspec_build.from_batch_command(script, jobname, *args, **size)
        return cls(**obj)._with(**more)

    @classmethod
    def from_nest_command(cls: type[V], command: Sequence[str], *args: Any, **more: Any) -> V:
        """A job that is an instance running `command`."""
        size = {key: more.pop(key) for key in submit_options.BUILDER_SIZE if key in more}
        return cls(**jobspec_build.from_nest_command(command, *args, **size))._with(**more)

    @classmethod
    def from_submit(
        cls: type[V],
        command: Sequence[str],
        *,
        ntasks: int = 1,
        nodes: Optional[int] = None,
        cores_per_task: int = 1,
        gpus_per_task: Optional[int] = None,
        exclusive: bool = False,
        **more: Any,
    ) -> V:
        """The jobspec of `flux submit` with the options of the same names; see `apply_options`."""
        options = submit_options.take(more)
        spec = cls.from_command(command, ntasks, cores_per_task, gpus_per_task, nodes, exclusive, **more)
        return spec.apply_options(prog="submit", **options)

    @classmethod
    def from_alloc(cls: type[V], *, bg: bool = False, **more: Any) -> V:
        """The jobspec of `flux alloc` with the options of the same names: `nslots` or `nodes`, and so on.

        With `bg`, the instance has no initial program.
        """
        if more.get("nslots") is None and more.get("nodes") is None:
            raise ValueError("from_alloc() requires nslots or nodes")
        options, size = submit_options.take(more), submit_options.take_size(more)
        if bg:
            size["broker_opts"] = [*(size.get("broker_opts") or []), "-Sbroker.rc2_none=1"]
        _default(more, "cwd", os.getcwd())
        spec = cls.from_nest_command([], **size, **more)
        if bg:
            spec.setattr_shell_option("pty.capture", 1)
        return spec.apply_options(prog="alloc", **options)

    @classmethod
    def from_batch(
        cls: type[V],
        script: Any = None,
        *,
        content: Optional[str] = None,
        wrap: bool = False,
        name: Optional[str] = None,
        **more: Any,
    ) -> V:
        """The jobspec of `flux batch` with the options of the same names, for a script file or its `content`.

        `wrap` adds `#!/bin/sh` to a script without an interpreter.
        """
        if (script is None) == (content is None):
            raise TypeError("from_batch() takes either 'script' (a path) or 'content' (the script's text)")
        if content is None:
            with open(script, encoding="utf-8") as file:
                content = file.read()
            name = os.path.basename(os.fspath(script)) if name is None else name
        if wrap and not content.startswith("#!"):
            content = "#!/bin/sh\n" + content
        options, size = submit_options.take(more), submit_options.take_size(more)
        _default(more, "cwd", os.getcwd())
        _default(more, "output", "flux-{{id}}.out")
        spec = cls.from_batch_command(content, "batch" if name is None else name, **size, **more)
        return spec.apply_options(prog="batch", **options)

    def apply_options(self: V, args: Any = None, *, prog: Optional[str] = None, **options: Any) -> V:
        """Apply options of `flux submit`, from a namespace or from keywords, which override it; returns self.

        `env` and `rlimit` are lists of rules, `dependency`, `requires` and `add_file` lists as on the command line,
        `shell_options` and `attributes` mappings. Raises TypeError for unknown names, ValueError for invalid values.
        """
        submit_options.apply(self, args, options)
        return self


def _default(keywords: Dict[str, Any], name: str, value: Any) -> None:
    """Set a keyword that is absent or None to `value`."""
    if keywords.get(name) is None:
        keywords[name] = value


def to_text(jobspec: Any) -> str:
    """The text of a job specification or of its text.

    Raises OSError EINVAL for None, TypeError for anything else.
    """
    if isinstance(jobspec, Jobspec):
        return jobspec.dumps()
    if isinstance(jobspec, bytes):
        return jobspec.decode("utf-8", "surrogateescape")
    if isinstance(jobspec, str):
        return jobspec
    if jobspec is None:
        raise OSError(errno.EINVAL, "jobspec must not be None")
    raise TypeError("jobspec must be a Jobspec or string (either binary or unicode)")


def validate_jobspec(jobspec: Any, require_version: Optional[int] = None) -> Tuple[bool, Jobspec]:
    """(True, the Jobspec) for a valid jobspec.

    Raises ValueError, which names the field, TypeError, OSError.
    """
    obj = json.loads(to_text(jobspec))
    specs.validate(obj, require_version)
    kind: Callable[..., Jobspec] = JobspecV1 if obj["version"] == 1 else Jobspec
    return True, kind(**obj)
