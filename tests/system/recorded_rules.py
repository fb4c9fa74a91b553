"""What counts as the same answer as a recorded one: the rules of masks.toml, applied to one line's answer."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OUTPUTS = ("stdout", "stderr")
# Where the recording left out a part of a usage text.
CUT = "[rest of the usage text left out]"
# An option's line in a help text: its names and metavar, then at least two spaces, then a sentence.
OPTION = re.compile(r"^ +(-\S.*?)(?:  +(\S.*))?$")

Masks = List[Tuple[str, str]]


@dataclass(frozen=True)
class Rule:
    """How one line's answer differs from the recorded one."""

    command: str
    why: str
    # Some runs answer as recorded.
    sometimes: bool = False
    # The lines of each stream are compared as a set of lines, because their order differs from run to run.
    any_order: bool = False
    masks: Masks = field(default_factory=list)
    # What our answer has in place of the recorded `rc`, `stdout` or `stderr`.
    ours: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    masks: Masks
    added: Masks
    differs: Dict[str, Rule]


def read(path: Path) -> Rules:
    """Raises KeyError for a key that no rule has, and for one that is missing."""
    table = tomllib.loads(path.read_text())
    differs = [_rule(dict(item)) for item in table.pop("differs")]
    masks, added = (_masks(table.pop(name)) for name in ("mask", "added"))
    if table or len(differs) > len({rule.command for rule in differs}):
        raise KeyError(f"unknown tables, or a command that is listed twice: {sorted(table)}")
    return Rules(masks, added, {rule.command: rule for rule in differs})


def _rule(item: dict[str, Any]) -> Rule:
    ours = {key: item.pop(key) for key in ("rc", *OUTPUTS) if key in item}
    masks = _masks(item.pop("mask", []))
    flags = {key: item.pop(key) for key in ("sometimes", "any_order") if key in item}
    rule = Rule(item.pop("command"), item.pop("why"), masks=masks, ours=ours, **flags)
    if item:
        raise KeyError(f"unknown keys {sorted(item)} of {rule.command}")
    return rule


def _masks(items: list[dict[str, str]]) -> Masks:
    return [(item["pattern"], item["to"]) for item in items]


def replaced(text: str, masks: Masks) -> str:
    for pattern, to in masks:
        text = re.sub(pattern, to, text)
    return text


def differences(line: Mapping[str, Any], outcome: Mapping[str, Any], rules: Rules, rule: Rule | None) -> list[str]:
    """How an outcome differs from a recorded line, or from what its rule says; empty when it does not.

    Both are {"rc": status, "stdout": text, "stderr": text}.
    """
    found = []
    ours = rule.ours if rule else {}
    for key in OUTPUTS:
        if key in ours:
            masks = rules.masks + rule.masks
            wanted = ours[key]
        else:
            masks = rules.masks + rules.added + (rule.masks if rule else [])
            wanted = line[key]
        wanted, got = (replaced(text, masks) for text in (wanted, outcome[key]))
        if rule and rule.any_order:
            wanted, got = ("\n".join(sorted(text.splitlines())) for text in (wanted, got))
        if CUT in wanted:
            absent = [part for part in wanted.replace(CUT, "").splitlines() if part not in got]
            found += [f"{key} lacks {part!r}" for part in absent] + traceback_in(key, got)
        elif is_help(wanted):
            found += help_differences(key, wanted, got)
        elif got != wanted:
            found.append(f"{key} is\n{got}\ninstead of\n{wanted}")
    wanted_rc = ours.get("rc", line["rc"])
    if outcome["rc"] != wanted_rc:
        found.append(f"status is {outcome['rc']} instead of {wanted_rc}")
    return found


def traceback_in(key: str, text: str) -> list[str]:
    return [f"{key} holds a traceback"] if "Traceback (most recent call last)" in text else []


def is_help(text: str) -> bool:
    return text.startswith(("Usage: ", "usage: ")) and any(map(OPTION.match, text.splitlines()))


def help_differences(key: str, wanted: str, got: str) -> list[str]:
    """A help text is compared by its usage line, options and metavars: its sentences are our own.

    An option that only ours has is no difference, an option without a sentence is one.
    """
    found = traceback_in(key, got)
    usage = wanted.splitlines()[0]
    if got.splitlines()[:1] != [usage]:
        found.append(f"{key} does not begin with {usage!r}")
    sentences = {match[1]: match[2] for match in map(OPTION.match, got.splitlines()) if match}
    for match in filter(None, map(OPTION.match, wanted.splitlines())):
        if not sentences.get(match[1]):
            found.append(f"{key} does not explain {match[1]!r}")
    return found
