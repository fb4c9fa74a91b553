"""Writes the pictures of the service's pages for the documentation: `make screenshots`.

Run within an instance of four brokers. Jobs are made that show what the pages can tell; each picture is taken by
Chromium and stays below 100 kB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# Name, path (JOB: the job that runs), width, height, dark.
PICTURES = (
    ("jobs", "/jobs", 1280, 560, False),
    ("job", "/jobs/JOB", 1100, 760, False),
    ("submit", "/submit", 1100, 860, True),
    ("machine", "/machine", 1100, 420, True),
    ("statistics", "/statistics?span=1h", 1100, 900, False),
)
LIMIT = 100_000
STEPS = "for n in 1 2 3 4; do echo step $n of 1000, energy -0.$n; done; echo cell 3 is slow >&2; sleep 1000"


def flux(*words: str) -> str:
    return subprocess.run(["flux", *words], check=True, capture_output=True, text=True).stdout.strip()


def submit(name: str, *words: str) -> str:
    return flux("submit", "--env=-*", "--env=PATH", "--cwd=/tmp", f"--job-name={name}", *words)


def jobs() -> str:
    """Make jobs in every state; returns the one that is shown."""
    for name, command in (("mesh", "true"), ("convert", "echo no such input >&2; exit 2"), ("check", "true")):
        submit(name, "sh", "-c", command)
    flux("queue", "drain")
    shown = submit("simulation", "-N2", "-t", "1h", "sh", "-c", STEPS)
    flux("job", "wait-event", shown, "start")
    flux("job", "wait-event", "-p", "output", shown, "data")
    flux("resource", "drain", "3", "fan to be replaced")
    submit("analysis", "-N3", "-t", "30m", "true")
    submit("report", "-N3", "-t", "10m", "true")
    submit("later", "--urgency=hold", "true")
    return shown


def take(url: str, file: Path, width: int, height: int, dark: bool, profile: str) -> None:
    """One picture. Raises SystemExit if it is too large."""
    command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--timeout=3000"]
    command += [f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--screenshot={file}"]
    command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", url]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if file.stat().st_size >= LIMIT:
        raise SystemExit(f"{file} has {file.stat().st_size} bytes, more than {LIMIT}")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shown = jobs()
    command = ["headrace", "api", "start", "--port", "0", "--json", "--auth", "none"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/tmp", env=os.environ)
    try:
        assert service.stdout is not None
        url = json.loads(service.stdout.readline())["url"]
        with tempfile.TemporaryDirectory() as profile:
            for name, path, width, height, dark in PICTURES:
                take(url + path.replace("JOB", shown), folder / f"{name}.png", width, height, dark, profile)
    finally:
        service.terminate()
        service.wait()
        flux("cancel", "--all")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
