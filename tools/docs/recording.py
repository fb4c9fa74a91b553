"""Records a session for the README: types COMMANDS in an instance of four brokers and draws what a terminal shows.

    .venv/bin/python tools/docs/recording.py docs/assets/first-run.svg

The picture is text in an SVG, without fonts or scripts from elsewhere. It has what the commands printed; only the names
of the user and the host are replaced, so that a recording does not tell where it was made.
"""

from __future__ import annotations

import getpass
import html
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent
COMMANDS = (
    "flux resource list -s free",
    "flux run -N4 -l sh -c 'echo task $FLUX_TASK_RANK of $FLUX_JOB_SIZE'",
    "flux submit --cc=1-1000 --quiet --wait true && flux jobs --stats-only",
    "flux submit --cc=1-2 -n5 -t1m --job-name=sim --quiet sleep 60; flux jobs",
)
_TITLE = "flux start --test-size=4"
_WIDTH, _SIZE, _LEADING = 96, 13.0, 18.0
# The advance of a character of common monospaced fonts, in parts of their size; `textLength` fits others to it.
_ADVANCE = 0.6
# Of ordinary spaces in a row a browser draws one.
_NO_BREAK = "\N{NO-BREAK SPACE}"
_BACK, _TEXT, _PROMPT, _TYPED = "#14242b", "#d5e3e6", "#4fb3a5", "#ffffff"


def _anonymous(text: str) -> str:
    hidden = {socket.gethostname(): "laptop", getpass.getuser(): "alice"}
    for name, instead in hidden.items():
        text = re.sub(rf"\b{re.escape(name)}\b *", lambda found, word=instead: word.ljust(len(found[0])), text)
    return text


def _session() -> list[tuple[str, str]]:
    """The session's lines, each with its colour."""
    lines = [(f"$ {_TITLE}", _TYPED)]
    script = "".join(f"printf '\\001%s\\n' {_quoted(command)}; {command}; " for command in COMMANDS)
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "LANG": "C.UTF-8", "COLUMNS": str(_WIDTH)}
    done = subprocess.run(
        [BIN / "flux", "start", "--test-size=4", "sh", "-c", script + "flux cancel --all 2>/dev/null"],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True,
    )  # fmt: skip
    printed = map(str.rstrip, _anonymous(done.stdout).splitlines())
    return lines + [(f"$ {line[1:]}", _TYPED) if line[:1] == "\001" else (line[:_WIDTH], _TEXT) for line in printed]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _svg(lines: list[tuple[str, str]]) -> str:
    width, height = _WIDTH * _SIZE * _ADVANCE + 32, len(lines) * _LEADING + 32
    rows = []
    for number, (text, color) in enumerate(lines):
        if not text.strip():
            continue
        y = 28 + number * _LEADING
        shown = html.escape(text, quote=False).replace(" ", _NO_BREAK)
        if color == _TYPED:
            shown = f'<tspan fill="{_PROMPT}">$</tspan>{shown[1:]}'
        length = len(text) * _SIZE * _ADVANCE
        place = f'x="16" y="{y:.0f}" textLength="{length:.1f}"'
        rows.append(f'<text {place} fill="{color}">{shown}</text>')
    style = f"font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:{_SIZE}px"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
        ' role="img">\n'
        f"<title>{_TITLE}, and what is typed in it</title>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{_BACK}"/>\n<g style="{style}">\n'
        + "\n".join(rows)
        + "\n</g>\n</svg>\n"
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(_svg(_session()))
