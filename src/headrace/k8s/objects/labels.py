"""Validation of labels, and of the names of labels, objects and Services. Pure.

Source: Kubernetes documentation, "Labels and Selectors" and "Object Names and IDs".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .problems import LABEL, LABEL_RULE, Problem

_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z")
WORD_RULE = "up to 63 letters, digits, '-', '_' and '.', the first and last a letter or digit"
DOMAIN_RULE = f"{LABEL_RULE}; '.' may separate parts"


def check_labels(labels: dict[str, str], path: str) -> Iterator[Problem]:
    """Check labels, or label selectors: keys with an optional domain, and values that may be empty."""
    for key, value in labels.items():
        yield from check_key(key, path)
        yield from check_word(value, f"{path}.{key}")


def check_word(value: str, path: str) -> Iterator[Problem]:
    """Check the value of a label or taint, which may be ""."""
    if value and (len(value) > 63 or not _WORD.match(value)):
        yield Problem(path, f"must be {WORD_RULE}, not {value!r}")


def is_key(key: str) -> bool:
    domain, slash, name = key.rpartition("/")
    return len(name) <= 63 and bool(_WORD.match(name)) and (not slash or is_domain(domain))


def check_key(key: str, path: str) -> Iterator[Problem]:
    """Check the name of a label, annotation or resource: [DOMAIN/]NAME."""
    if not is_key(key):
        yield Problem(f"{path}.{key}", f"its name must be NAME or DOMAIN/NAME, with a NAME of {WORD_RULE}")


def is_domain(text: str) -> bool:
    return len(text) <= 253 and all(LABEL.match(part) for part in text.split("."))


def check_domain(name: str, path: str) -> Iterator[Problem]:
    """Check a reference to an object by name; "" is no reference."""
    if name and not is_domain(name):
        yield Problem(path, f"{name!r} is not a valid name: {DOMAIN_RULE}")


def check_name(name: str, path: str) -> Iterator[Problem]:
    if name and (len(name) > 63 or not LABEL.match(name)):
        yield Problem(path, f"{name!r} is not a valid name: {LABEL_RULE}, 63 at most")


def check_service_name(name: str, path: str) -> Iterator[Problem]:
    """Check the name of a Service (RFC 1035); "" if it is not given."""
    if name and (len(name) > 63 or not LABEL.match(name) or not name[0].isalpha()):
        yield Problem(path, f"{name!r} cannot name a Service: {LABEL_RULE}; the first must be a letter; 63 at most")
