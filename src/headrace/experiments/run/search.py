"""Regular expressions of users, with a time limit.

Some expressions take exponential time on some texts, and Python's `re` cannot be interrupted. So they are applied in a
process of its own: `python -m headrace.experiments.run.search` reads requests as lines of JSON and writes answers. The
process sets itself a limit of CPU time before each request, which the kernel enforces also on a busy machine.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import threading
from pathlib import Path

# CPU seconds for an expression on one file, and the most bytes of the file that are searched: its end.
CPU_SECONDS = 5
MOST_BYTES = 64 << 20


class SearchError(Exception):
    """The expression could not be applied; the message says why."""


class Searcher:
    """Applies expressions in one helper process, which is started when it is needed. Usable from several threads."""

    def __init__(self, cpu_seconds: int = CPU_SECONDS) -> None:
        self._seconds = cpu_seconds
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def last(self, regex: str, path: Path) -> str | None:
        """The first group of the last match in a file, or the whole match if there is no group; None: no match.

        Raises SearchError if the file cannot be read or the search takes too long.
        """
        with self._lock:
            process = self._process or self._start()
            assert process.stdin and process.stdout
            try:
                process.stdin.write(json.dumps([regex, str(path), self._seconds]) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except BrokenPipeError:
                answer = ""
            if not answer:
                self._end()
                raise SearchError(f"the regular expression {regex!r} took more than {self._seconds} s of CPU time")
        found, error = json.loads(answer)
        if error:
            raise SearchError(error)
        return None if found is None else str(found)

    def _start(self) -> subprocess.Popen[str]:
        # A session of its own, so that Ctrl-C at the terminal does not end it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self._process

    def _end(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        pass
            self._process = None

    def close(self) -> None:
        with self._lock:
            self._end()


def _limit_cpu(seconds: int) -> None:
    """Let the kernel end this process after some more seconds of CPU time."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = int(usage.ru_utime + usage.ru_stime) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, resource.RLIM_INFINITY))


def _search(regex: str, path: str) -> str | None:
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - MOST_BYTES))
        text = file.read().decode("utf-8", "replace")
    found = None
    for match in re.finditer(regex, text, re.MULTILINE):
        found = match
    return None if found is None else found[1 if found.re.groups else 0]


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for line in sys.stdin:
        regex, path, seconds = json.loads(line)
        _limit_cpu(seconds)
        answer: list[str | None] = [None, None]
        try:
            answer[0] = _search(regex, path)
        except OSError as exc:
            answer[1] = f"{path}: {exc.strerror}"
        except re.error as exc:
            answer[1] = f"the regular expression {regex!r} is invalid: {exc}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main()
