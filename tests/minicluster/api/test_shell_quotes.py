"""Open quotes in shell text: what is said to be open no shell reads, and what people write passes."""

from __future__ import annotations

import random
import shutil
import subprocess

import pytest

import seeds
from headrace.minicluster.api.shell_quotes import OpenQuote, open_quote

SHELLS = [shell for shell in (["bash"], ["dash"], ["busybox", "sh"]) if shutil.which(shell[0])]
# Pieces whose order decides what a quote means.
PIECES = (
    *("'", '"', "'", '"', "\\", "\n", " ", "#", "a", "$", "(", ")", "{", "}", "`", "<", "$(", "${", "$((", "))"),
    *("$'", "<<a\n", "case x in a)", ";;", " esac", " # ", "exit\n", "=", ":-", "it's", ";", "|"),
)


@pytest.mark.parametrize(
    ("text", "line", "excerpt"),
    [
        ("echo it's", 1, "'s"),
        ('a\necho "b\nc', 2, '"b...'),
        ('echo "$(hostname \'x)"', 1, "'x)\""),
        ("echo 'a' 'b", 1, "'b"),
        ("echo \\'a '", 1, "'"),
        ("# it's\necho it's", 2, "'s"),
        ("echo a#it's", 1, "'s"),
        ("echo '" + "a" * 100, 1, "'" + "a" * 23 + "..."),
        ("echo 'exit\n", 1, "'exit..."),
    ],
)
def test_a_quote_that_stays_open_is_found(text: str, line: int, excerpt: str) -> None:
    assert open_quote(text) == OpenQuote(line, excerpt)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "echo it\\'s",
        "echo \"it's\" '\"'",
        "echo hi # it's",
        "echo $(echo '(' \"$(echo ')')\")",
        'echo "${a:-it\'s}"',
        "cat <<EOF\nit's\nEOF",
        "echo $'it\\'s'",
        "echo `echo it\\'s`",
        "exit 0\nit's over",
        'echo "$(case a in a) echo \'it"s\';; esac)"',
        "((a=1<<2)); echo 'it'",
        'echo $((1 + 1)) "$((2))"',
    ],
)
def test_what_a_shell_runs_passes(text: str) -> None:
    assert open_quote(text) is None
    assert 0 in [subprocess.run([*shell, "-c", text], check=False).returncode for shell in SHELLS]


def test_no_shell_reads_what_is_said_to_be_open() -> None:
    chance = random.Random(seeds.seed())
    texts = ["".join(chance.choices(PIECES, k=chance.randrange(1, 12))) for _ in range(1200)]
    found = [text for text in texts if open_quote(text)]
    assert len(found) > 100
    for text in found:
        for shell in SHELLS:
            done = subprocess.run([*shell, "-n", "-c", text], capture_output=True, check=False)
            assert done.returncode != 0, (shell, text)
