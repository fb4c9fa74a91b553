"""A spoiled file is an experiment or an error with a line, and never another exception."""

from __future__ import annotations

import random
import re

import pytest

import seeds
import sizes
from headrace.experiments.file.first_file import EXAMPLE
from headrace.experiments.file.load import read_text
from headrace.experiments.file.problems import InvalidExperiment
from headrace.experiments.plan import plan

ALL_KEYS = """\
targets: {a: {type: kubernetes, price: {m: 1}}, b: {type: instance, uri: x}}
exclude: [{size: 1, x: [1, 2]}]
parameters: {x: [1, 2], y: [true, a b, 1.5]}
matrix: {size: [1, 2], machine: [m, n]}
repeats: {min: 2, max: 5, until: {metric: t, relative-ci: 0.1}}
minicluster:
  size: [1, 2]
  volumes: {d: {storageClass: hostpath, path: /x}}
  containers: [{name: side, image: i}]
x-anchor: &anchor {image: i, retry: 1}
jobs:
  a:
    <<: *anchor
    command: "run {{x}}"
    metrics: {t: {regex: "(a)"}, u: {json: a.b, required: false}}
    check: {exit: 1, regex: x}
    files: [{out: "*"}]
    volumes: {d: {path: /d}}
    commands: {post: x}
    pre_command: y
    existing_volumes: {e: {claimName: c, path: /e}}
    limits: {cpu: 1}
    memory: "{{x}}"
    tasks: "{{x}}"
"""
PIECES = (
    *(
        "{",
        "}",
        "[",
        "]",
        ":",
        ": ",
        "- ",
        "\n",
        "\n  ",
        "'",
        '"',
        "&a ",
        "*a ",
        "<<: *anchor",
        "!!int ",
        "null",
        "true",
    ),
    *("-1", "0", "1.5", "1e9", "9" * 30, "{{x}}", "..", "/", "\0", "\t", "#", "|", "~", "é", "[1]", "{a: 1}", "\\"),
)


def spoiled(text: str, dice: random.Random) -> str:
    for _ in range(dice.randint(1, 4)):
        at, kind = dice.randrange(len(text) + 1), dice.randrange(4)
        if kind == 0:
            text = text[:at] + dice.choice(PIECES) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + dice.randint(1, 8) :]
        elif kind == 2:
            other = dice.randrange(len(text) + 1)
            text = text[:at] + text[other : other + dice.randint(1, 40)] + text[at:]
        else:
            words = list(re.finditer(r"(?<=: )[^\n]+|[\w-]+(?=:)", text))
            word = dice.choice(words) if words else None
            text = text[: word.start()] + dice.choice(PIECES) + text[word.end() :] if word else text
    return text


@pytest.mark.soak
def test_a_spoiled_file_is_an_experiment_or_an_error_with_a_line() -> None:
    assert len(read_text(ALL_KEYS, "exp.yaml").cells) == 24
    dice = random.Random(seeds.seed())
    accepted = refused = 0
    for _ in range(sizes.size("spoiled_experiments")):
        text = spoiled(dice.choice((EXAMPLE, ALL_KEYS, ALL_KEYS)), dice)
        try:
            plan(read_text(text, "exp.yaml"))
        except InvalidExperiment as exc:
            refused += 1
            assert any(problem.line for problem in exc.problems), text
        else:
            accepted += 1
    assert min(accepted, refused) > 10
