"""The metrics of a job, and its check.

A regular expression is compiled here, and nothing more. Some expressions take exponential time for some texts, and
Python cannot interrupt a match; `run` therefore applies them in a process that it ends after a time limit.
"""

from __future__ import annotations

import re

from headrace.experiments.values import Check, Metric

from .document import Value
from .paths import path_rule
from .section import Findings, Section, described

# How the regular expressions of metrics and checks are compiled: ^ and $ match at each line.
FLAGS = re.MULTILINE
_LONGEST = 10_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
# A path in a JSON document: keys of objects, and numbers of items, between dots.
_JSON_PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+)*\Z")


def read_metrics(value: Value | None, findings: Findings) -> tuple[Metric, ...]:
    found = []
    for name, item in Section(value, findings).items.items():
        section = Section(item, findings)
        regex, path = section.take("regex"), section.take("json")
        source = section.text("from", "stdout")
        metric = Metric(
            name=name,
            regex=read_regex(regex, findings, groups=1),
            json=section.text("json"),
            unit=section.text("unit"),
            source=source,
            better="higher" if section.choice("better", ("lower", "higher"), "lower") == "higher" else "lower",
            required=section.flag("required", True),
            line=item.line,
        )
        if (regex is None) == (path is None):
            findings.wrong(item, "needs one of regex and json")
        if metric.json and not _JSON_PATH.match(metric.json):
            findings.wrong(path or item, f'"{metric.json}" is not a path in JSON (try results.time or runs.0.time)')
        if not _NAME.match(name):
            findings.wrong(item, "the name of a metric has letters, digits, '_', '-' and '.', and begins with a letter")
        if source not in ("stdout", "stderr") and path_rule(source):
            findings.wrong(section.take("from") or item, path_rule(source))
        section.close()
        found.append(metric)
    return tuple(found)


def read_check(value: Value | None, findings: Findings) -> Check:
    section = Section(value, findings)
    check = Check(regex=read_regex(section.take("regex"), findings), exit=section.whole("exit", 0, 0, 255))
    section.close()
    return check


def read_regex(value: Value | None, findings: Findings, groups: int = 0) -> str:
    """A regular expression with at least this many groups."""
    if value is None:
        return ""
    if not isinstance(value.data, str) or not value.data:
        findings.wrong(value, f"must be a regular expression, not {described(value)}")
        return ""
    if len(value.data) > _LONGEST:
        findings.wrong(value, f"has more than {_LONGEST:,} characters")
        return ""
    try:
        compiled = re.compile(value.data, FLAGS)
    except re.error as exc:
        where = f" at character {exc.pos + 1}" if exc.pos is not None else ""
        findings.wrong(value, f"is no regular expression of Python: {exc.msg}{where}")
        return ""
    except (OverflowError, RecursionError) as exc:
        findings.wrong(value, f"is no regular expression of Python: {exc}")
        return ""
    if compiled.groups < groups:
        findings.wrong(value, "needs a group: put parentheses around the number, such as `time: ([0-9.]+)`")
    return value.data
