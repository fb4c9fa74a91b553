"""Templates and what their tags stand for."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.shell.templates import Names, expand, tags
from headrace.formats.spec.idset import Idset

NAMES = Names(1 << 24, "ƒ9ZLgo", "sim", 2, 4, "/tmp/job", 1, "node7", 5, Idset([2, 3]), Idset([0]), [2, 3])


def filled(text: str, rank: int | None = None) -> str:
    return expand(text, partial(NAMES.lookup, rank=rank))


def test_tags_of_the_job_and_the_node() -> None:
    assert filled("{{name}}-{{id}}-{{jobid}}.{{size}}.{{ntasks}}.{{nnodes}}") == "sim-ƒ9ZLgo-ƒ9ZLgo.4.4.2"
    assert filled("{{id.dec}} {{ jobid.hex }} {{tmpdir}}") == "16777216 0x1000000 /tmp/job"
    assert filled("{{node.id}}:{{node.name}}:{{node.cores}}:{{node.ncores}}") == "1:node7:2-3:2"
    assert filled("{{node.broker_rank}} {{node.gpus}}") == "5 0"
    assert filled("{{node.resources}}") == '{"ncores":2,"cores":"2-3","gpus":"0"}'


def test_tags_of_a_task_are_left_for_where_a_task_is_known() -> None:
    text = "{{taskid}} {{task.id}} {{task.rank}} {{task.localid}} {{task.index}}"
    assert filled(text) == text
    assert filled(text, 3) == "3 3 3 1 1"


def test_tags_that_nobody_knows_stay() -> None:
    text = "{{nobody}} {{id.roman}} {{task.colour}} {{name.first}} {{}} {{a b}} {name}"
    assert filled(text, 2) == text


@given(st.text("{} .ab\n", max_size=30))
def test_text_is_kept_but_for_known_tags(text: str) -> None:
    assert expand(text, lambda _tag: None) == text
    known = tags(text)
    put_back = expand(text, lambda tag: "{{" + tag + "}}" if tag in known else None)
    # White space around a tag is not part of it.
    assert "".join(put_back.split()) == "".join(text.split())
