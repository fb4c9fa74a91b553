"""The jobs that the benchmarks submit, of two kinds.

`identical` jobs are all one `/bin/true` with two words of environment: what a service costs that may keep everything.
`realistic` jobs differ in an argument and carry an environment of 3 kB, as jobs from a user's shell do. Bodies of
requests are made as they are asked for: text is joined and encoded, nothing is serialised anew, so that a driver takes
little of the machine that it shares with the broker.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from typing import Any

KINDS = ("identical", "realistic")
TRUE = "/bin/true"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Bytes of `NAME=value`, each with its NUL, that a process gets.
_ENVIRONMENT_SIZE = 3000
_MARK = "argument-of-this-job"


def environment(kind: str) -> dict[str, str]:
    """The environment of a job of this kind; the same on every machine."""
    found = {"PATH": _PATH if kind == "realistic" else "/usr/bin:/bin"}
    if kind == "identical":
        return found
    size = len(f"PATH={_PATH}") + 1
    number = 0
    while size < _ENVIRONMENT_SIZE:
        # The lengths are those of module systems: short names of packages, long paths.
        name, value = f"PACKAGE_{number}_ROOT", f"/opt/packages/{'library' if number % 3 else 'x'}-{number}/{number}.1"
        found[name] = value
        size += len(name) + len(value) + 2
        number += 1
    return found


def command(kind: str, number: int) -> list[str]:
    """The arguments of job `number`."""
    return [TRUE, str(number)] if kind == "realistic" else [TRUE]


def submissions(kind: str, count: int, simulated: bool) -> Iterator[dict[str, Any]]:
    """`count` bodies of `job-ingest.submit` (RFC 15, mechanism none); a simulated job runs for a tenth of a ms."""
    from headrace.formats.spec import jobspec_build

    spec = jobspec_build.from_command([TRUE, _MARK] if kind == "realistic" else [TRUE])
    system = spec["attributes"]["system"]
    system["cwd"] = "/tmp"
    system["environment"] = environment(kind)
    if simulated:
        system["exec"] = {"test": {"run_duration": "0.0001s"}}
    head = base64.b64encode(b"version\0i1\0userid\0i%d\0mechanism\0snone\0" % os.getuid()).decode()
    before, _, after = json.dumps(spec).partition(_MARK)
    for number in range(count):
        text = f"{before}{number}{after}" if after else before
        signed = f"{head}.{base64.b64encode(text.encode()).decode()}.none"
        yield {"J": signed, "urgency": 16, "flags": 0}
