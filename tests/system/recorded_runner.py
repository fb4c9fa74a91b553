"""Run as the initial program of an instance: executes recorded command lines one after another.

Arguments: a file of recorded lines (JSON), a folder to run them in, and the file for the results.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

LIMIT = 100.0


def run(command: str, home: str, env: dict[str, str]) -> dict[str, object]:
    """One line by the shell, in a session of its own, so that one that hangs can be ended with all it started."""
    child = subprocess.Popen(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=home,
        env=env,
        start_new_session=True,
    )
    try:
        stdout, stderr = child.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        stdout, stderr = child.communicate()
        return {"rc": None, "stdout": stdout.decode(), "stderr": stderr.decode() + f"[did not end within {LIMIT} s]"}
    return {"rc": child.returncode, "stdout": stdout.decode(), "stderr": stderr.decode()}


def main() -> None:
    lines_path, home, results_path = sys.argv[1:]
    env = {**os.environ, "HOME": home, "LANG": "C.UTF-8", "PWD": home, "SHELL": "/bin/bash"}
    # Commands buffer what they print to a pipe, as they did when they were recorded.
    env.pop("PYTHONUNBUFFERED", None)
    with open(lines_path) as lines, open(results_path, "w") as results:
        for line in lines:
            command = json.loads(line)["command"].replace("/home/user", home)
            outcome = run(command, home, env)
            results.write(json.dumps({"command": command, **outcome}) + "\n")
            results.flush()


if __name__ == "__main__":
    main()
