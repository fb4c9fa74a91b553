"""Reads the YAML documents of a file as kubectl does: dates are text, and keys must be text."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.composer import Composer

from headrace.k8s.objects.problems import Problem

from .fields import InvalidMiniCluster

# Maximum number of characters of a file. A request to etcd has at most 1.5 MiB ("System limits" in etcd's
# documentation), but a file may also have comments.
LARGEST = 3_000_000
# Maximum number of bits of a whole number.
_LARGEST_NUMBER = 64

# LibYAML's parser is used if PyYAML has it, because it is three times as fast. The composer is always the Python one,
# which raises RecursionError for text nested some ten thousand levels deep. LibYAML's composer crashes the process up
# to release 0.2.5; later releases refuse more than 1,000 levels.
_YAML: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Base: Any = _YAML if issubclass(_YAML, Composer) else type("_Base", (Composer, _YAML), {})


class Parser(_Base):  # type: ignore[misc]
    """A loader with this parser and composer."""

    def __init__(self, text: str) -> None:
        _YAML.__init__(self, text)
        Composer.__init__(self)


class _Loader(Parser):
    """A loader that uses the last value of a duplicate key, and adds a warning to `warnings`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.warnings: list[str] = []


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not text", key_node.start_mark)
        if key in seen:
            loader.warnings.append(f"line {key_node.start_mark.line + 1}: {key} is given twice, the last one counts")
        seen.add(key)
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


def _number(loader: _Loader, node: yaml.ScalarNode) -> int:
    """A whole number.

    A number too large for any field of Kubernetes is refused, because Python may not print it.
    """
    number: int = loader.construct_yaml_int(node)
    if number.bit_length() > _LARGEST_NUMBER:
        raise yaml.constructor.ConstructorError(None, None, "a number of more than 64 bits", node.start_mark)
    return number


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)


def documents(text: str) -> tuple[list[Any], list[str]]:
    """The documents of a text, and warnings.

    Raises InvalidMiniCluster if it is not YAML, empty or too large.
    """
    if len(text) > LARGEST:
        why = f"larger than {LARGEST // 1_000_000} MB: Kubernetes takes objects of 1.5 MiB at most (a request to etcd)"
        raise InvalidMiniCluster([Problem("", why)])
    found = []
    try:
        loader = _Loader(text)
        while loader.check_data():
            document = loader.get_data()
            if document is not None:
                found.append(document)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InvalidMiniCluster([Problem(where, f"not YAML: {exc.problem or exc.context}")]) from None
    except RecursionError:
        raise InvalidMiniCluster([Problem("", "not YAML: nested too deeply")]) from None
    except (yaml.YAMLError, ValueError) as exc:
        raise InvalidMiniCluster([Problem("", f"not YAML: {' '.join(str(exc).split())}")]) from None
    if not found:
        raise InvalidMiniCluster([Problem("", "the file is empty")])
    return found, loader.warnings
