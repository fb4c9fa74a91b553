"""What the user's page on the resource graph tells to type works, on the files of `examples/graph`."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "graph"
PAGE = (ROOT / "docs" / "user" / "resource-graph.md").read_text()


def test_the_commands_of_the_page_answer_as_the_page_means_them() -> None:
    block = next(text for text in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) if text.startswith("$ headrace"))
    command, _, typed = block.partition("\n")
    words = shlex.split(command.removeprefix("$ headrace"))
    main = "import sys; from headrace.cli.main import headrace; sys.exit(headrace(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", main, *words], input=typed, cwd=EXAMPLES, capture_output=True, text=True, check=True
    )
    assert re.findall(r"INFO: RESOURCES=(\w+)", done.stdout) == ["ALLOCATED", "ALLOCATED"]
    assert '"nodelist": ["node[2-3]"]' in done.stdout and '"nodelist": ["node[0-1]"]' in done.stdout
    # What is free for the last question: two cores of each node.
    assert '{"rank": "0-3", "children": {"core": "0-1"}}' in done.stdout


def test_the_program_of_the_page_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], cwd=EXAMPLES, capture_output=True, text=True, check=True)
    assert '"R_lite": [{"rank": "0-1", "children": {"core": "0-3"}}]' in done.stdout
