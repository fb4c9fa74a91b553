"""The smallest part of a constraint (RFC 31) that excludes every node, in words.

"No node has property fsat" points a user to the typing error; "0 nodes are eligible" does not. The caller passes a
function that matches constraints against nodes, since callers store nodes in different ways.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List


def excluding(obj: Dict[str, Any], some_match: Callable[[Dict[str, Any]], bool]) -> str:
    """The part of a valid constraint that excludes every node, in words; "" if a node satisfies it.

    `some_match` returns whether any node satisfies a constraint.
    """
    if some_match(obj):
        return ""
    parts = _conjuncts(obj)
    alone = [part for part in parts if not some_match(part)]
    if len(parts) > 1:
        if alone:
            return excluding(alone[0], some_match)
        return "no node has " + " and ".join(_words(part) for part in parts)
    ((op, values),) = parts[0].items()
    if op == "or":
        return ", ".join(excluding(value, some_match) for value in values)
    if op == "not":
        return f"every node has {' and '.join(_words(value) for value in values)}" if values else "not excludes all"
    if op == "properties":
        name = values[0]
        return f"every node has property {name[1:]}" if name.startswith("^") else f"no node has property {name}"
    return f"no node has {_words(parts[0])}"


def _conjuncts(obj: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The parts of a constraint that must all be satisfied, each with one operator."""
    out: List[Dict[str, Any]] = []
    for op, values in obj.items():
        if op == "and":
            for value in values:
                out.extend(_conjuncts(value))
        elif op == "properties":
            out.extend({op: [value]} for value in values)
        else:
            out.append({op: values})
    return out


def _words(obj: Dict[str, Any]) -> str:
    return (
        " and ".join(_part_words(op, values) for part in _conjuncts(obj) for op, values in part.items()) or "anything"
    )


def _part_words(op: str, values: List[Any]) -> str:
    if op == "or":
        return "(" + " or ".join(_words(value) for value in values) + ")"
    if op == "not":
        return "not (" + " and ".join(_words(value) for value in values) + ")"
    if op == "properties":
        return f"no property {values[0][1:]}" if values[0].startswith("^") else f"property {values[0]}"
    return {"hostlist": "host ", "ranks": "rank "}[op] + ",".join(str(value) for value in values)
