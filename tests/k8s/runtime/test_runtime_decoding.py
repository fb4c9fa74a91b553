"""What the API server answers is decoded however deep one object of it is."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from headrace.k8s.runtime.api import KEPT_LEVELS, decoded


def nested(levels: int, inside: str = "1") -> str:
    return '{"a":' * levels + inside + "}" * levels


def depth(value: Any) -> int:
    """Levels of a value, counted without recursion."""
    found, rest = 0, [value]
    while rest := [one for each in rest for one in (each.values() if isinstance(each, dict) else each)]:
        found += 1
        rest = [one for one in rest if isinstance(one, (dict, list))]
    return found


def test_an_object_that_is_nested_too_deeply_is_cut_and_no_other() -> None:
    other = {"metadata": {"name": "b", "labels": {"x": 'quoted \\" { [ \\\\'}}, "spec": [[1, {"c": None}], []]}
    for levels in (990, 5000, 100_000):
        first = f'{{"metadata": {{"name": "a"}}, "spec": {nested(levels)}, "kind": "K"}}'
        found = decoded(f'{{"items": [{first}, {json.dumps(other)}, {first}]}}'.encode())
        assert found["items"][1] == other
        for one in (found["items"][0], found["items"][2]):
            assert one["metadata"] == {"name": "a"} and one["kind"] == "K"
            assert depth(one) < KEPT_LEVELS
    assert depth(decoded(b"[" * 5000 + b"]" * 5000)) == KEPT_LEVELS


def test_what_is_as_deep_as_objects_are_is_left_as_it_is() -> None:
    for levels in (1, 50, 200):
        assert decoded(nested(levels).encode()) == json.loads(nested(levels))


@pytest.mark.parametrize("seed", range(20))
def test_what_stands_beside_is_kept(seed: int) -> None:
    rng = random.Random(seed)

    def text() -> str:
        return "".join(rng.choice('a"\\{}[]:, \n\u00e9') for _ in range(rng.randint(0, 12)))

    def value(levels: int) -> Any:
        if not levels:
            return rng.choice((None, True, -1.5e3, text()))
        if rng.random() < 0.5:
            return [value(levels - 1) for _ in range(rng.randint(0, 3))]
        return {text(): value(levels - 1) for _ in range(rng.randint(0, 3))}

    known = [value(4) for _ in range(5)]
    parts = [json.dumps(one, ensure_ascii=rng.random() < 0.5) for one in known]
    found = decoded(f"[{', '.join(f'{one}, {nested(5000, json.dumps(text()))}' for one in parts)}]".encode())
    assert found[::2] == known


@pytest.mark.parametrize("raw", [b'{"a":' * 5000, b"[" * 5000 + b"}" * 5000, nested(5000).encode() + b"}"])
def test_what_is_no_json_is_told(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decoded(raw)
