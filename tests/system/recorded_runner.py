"""Run as the initial program of an instance: executes recorded command lines one after another.

Arguments: a file of recorded lines (JSON), a folder to run them in, and the file for the results.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys


def main() -> None:
    lines_path, home, results_path = sys.argv[1:]
    env = {**os.environ, "HOME": home, "LANG": "C.UTF-8", "PWD": home}
    with open(lines_path) as lines, open(results_path, "w") as results:
        for line in lines:
            command = json.loads(line)["command"].replace("/home/user", home)
            try:
                done = subprocess.run(
                    ["sh", "-c", command],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    cwd=home,
                    env=env,
                    timeout=20,
                    check=False,
                )
                outcome = {"rc": done.returncode, "stdout": done.stdout.decode(), "stderr": done.stderr.decode()}
            except subprocess.TimeoutExpired:
                outcome = {"rc": None, "stdout": "", "stderr": "[did not end within 20 s]"}
            results.write(json.dumps({"command": command, **outcome}) + "\n")
            results.flush()


if __name__ == "__main__":
    main()
