"""Options of `resource-query`: what is refused, and what has no effect says so."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO, cast

import pytest

from headrace.sched.graph import Graph, Scheduler, jobspec_text, resource_query
from headrace.sched.graph.formats import rv1
from headrace.sched.graph.formats.writers import WRITERS
from headrace.sched.graph.query_commands import Commands
from headrace.sched.graph.request import JobRequest

R = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-1", "children": {"core": "0-3"}}],
        "nodelist": ["n[0-1]"],
        "starttime": 0,
        "expiration": 0,
    },
}


def run(folder: Path, *options: str) -> int:
    (folder / "R.json").write_text(json.dumps(R))
    return resource_query.main(
        ["-L", str(folder / "R.json"), "-f", "rv1exec", "-d", *options], io.StringIO("find names=n0\n")
    )


@pytest.mark.parametrize("filters", ["foo", "ALL:", ":core", "ALL:core,foo", "ALL:core,"])
def test_a_prune_filter_names_what_is_counted_below_what(
    filters: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "-p", filters) == 1
    wrong = filters.rpartition(",")[2]
    assert capsys.readouterr().err == (
        f"headrace-resource-query: prune filter '{wrong}': must be TYPE:COUNTED, such as ALL:core\n"
    )


@pytest.mark.parametrize("filters", ["", "ALL:core", "ALL:core,rack:node"])
def test_prune_filters_may_be_none_or_several(filters: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "-p", filters) == 0
    assert "n0[1:x]" in capsys.readouterr().out


def test_an_allowlist_has_no_effect_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "-W", "node") == 0
    shown = capsys.readouterr()
    assert shown.err == "headrace-resource-query: WARN: format rv1exec has no allowlist: all types are loaded\n"
    assert "n0[1:x]" in shown.out


def test_what_is_asked_of_jobs_is_not_among_the_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "R.json").write_text(json.dumps(R))
    options = ["-L", str(tmp_path / "R.json"), "-f", "rv1exec", "-d", "-t", str(tmp_path / "out")]
    assert resource_query.main(options, io.StringIO("stat\nhelp quit\nget-status /cluster0/n0\n")) == 0
    assert (tmp_path / "out").read_text() == "/cluster0/n0 is up\n"
    shown = capsys.readouterr().out
    assert shown.startswith("INFO: Num. of Jobs Matched: 0\nINFO: Min. Match Time: 0\n")
    assert shown.endswith("INFO: quit (q) -- end: quit\n")


def test_a_graph_in_shorthand_leaves_out_what_is_given_whole_and_can_be_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "R.json").write_text(json.dumps(R))
    (tmp_path / "job.yaml").write_text("{resources: [{type: node, count: 1, exclusive: true}]}")
    found = {}
    for form in ("jgf", "jgf_shorthand"):
        options = ["-L", str(tmp_path / "R.json"), "-f", "rv1exec", "-F", form]
        assert resource_query.main(options, io.StringIO(f"match allocate {tmp_path}/job.yaml\n")) == 0
        found[form] = json.loads(capsys.readouterr().out.splitlines()[0])
    types = {form: [node["metadata"]["type"] for node in graph["graph"]["nodes"]] for form, graph in found.items()}
    assert types == {"jgf": ["core"] * 4 + ["node", "cluster"], "jgf_shorthand": ["node", "cluster"]}
    assert {form: graph.get("writer") for form, graph in found.items()} == {
        "jgf": None,
        "jgf_shorthand": "fluxion:jgf_shorthand",
    }
    (tmp_path / "short.json").write_text(json.dumps(found["jgf_shorthand"]))
    options = ["-L", str(tmp_path / "short.json"), "-f", "jgf_shorthand"]
    assert resource_query.main(options, io.StringIO(f"match allocate {tmp_path}/job.yaml\n")) == 0
    assert "RESOURCES=ALLOCATED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("resources", "simple"),
    [
        ("[{type: node, count: 1}]", True),
        ("[{type: slot, count: 1, label: a, with: [{type: node, count: 1}]}]", True),
        ("[{type: xor_slot, count: 1, label: a, with: [{type: node, count: 1}]}]", False),
        ("[{type: node, count: 1, with: [{type: slot, count: 1, with: [{type: core, count: 9}]}, "
         "{type: slot, count: 1, with: [{type: core, count: 4}]}]}]", False),
    ],
)  # fmt: skip
def test_alternatives_need_the_flexible_traverser(
    resources: str, simple: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "R.json").write_text(json.dumps(R))
    (tmp_path / "job.yaml").write_text(f"{{resources: {resources}}}")
    for traverser, given in (("simple", simple), ("flexible", True)):
        options = ["-L", str(tmp_path / "R.json"), "-f", "rv1exec", "-T", traverser]
        assert resource_query.main(options, io.StringIO(f"match allocate {tmp_path}/job.yaml\n")) == 0
        shown = capsys.readouterr()
        assert ("RESOURCES=ALLOCATED" in shown.out) is given
        assert ("(-T flexible)" in shown.err) is not given


def test_the_size_of_the_graph_and_the_time_of_each_match_are_shown_if_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "R.json").write_text(json.dumps(R))
    for name, count in (("good", 2), ("bad", 3)):
        (tmp_path / f"{name}.yaml").write_text(f"{{resources: [{{type: node, count: {count}}}]}}")
    options = ["-L", str(tmp_path / "R.json"), "-f", "rv1exec", "-F", "rlite", "-e", "-t", str(tmp_path / "out")]
    commands = [f"match {kind} {tmp_path}/{name}.yaml\n" for kind in ("allocate", "sat") for name in ("good", "bad")]
    assert resource_query.main(options, io.StringIO("".join(commands))) == 0
    lines = [line.partition(": ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines[1:8] == [
        "Vertex Count: 11",
        "Edge Count: 10",
        "by_type Key-Value Pairs: 3",
        "by_name Key-Value Pairs: 7",
        "by_path Key-Value Pairs: 11",
        "number of vertices with rank -1: 1",
        "number of vertices with rank 0: 5",
    ]
    assert [line.partition("=")[0] for line in lines[9:]] == ["ELAPSE"] * 4
    times = [
        float(line.partition(separator)[2]) for line, separator in zip(lines[:1] + lines[9:], ":====", strict=True)
    ]
    assert min(times) > 0
    assert "ELAPSE" not in (tmp_path / "out").read_text()


@pytest.mark.parametrize(("size", "warned"), [("-1", True), ("0", False), ("2000000", False), ("2000001", True)])
def test_the_number_of_vertices_to_expect_has_a_limit(
    size: str, warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "-r", size) == 0
    assert ("out of range" in capsys.readouterr().err) is warned


def test_a_property_is_listed_with_its_value_if_that_may_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = '"properties": {"plain": "0"}, "starttime"'
    (tmp_path / "R.json").write_text(json.dumps(R).replace('"starttime"', plain))
    (tmp_path / "job.yaml").write_text("{resources: [{type: node, count: 2, exclusive: true}]}")
    settings = "set-property /cluster0/n0 kind=fat\nset-property /cluster0/n1 odd=a|b\n"
    options = ["-L", str(tmp_path / "R.json"), "-f", "rv1exec", "-F", "rv1_nosched", "-d"]
    assert resource_query.main(options, io.StringIO(f"{settings}match allocate {tmp_path}/job.yaml\n")) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[0])
    assert shown["execution"]["properties"] == {"kind=fat": "0", "odd": "1", "plain": "0"}


class Lines:
    """Standard input whose lines come with something that happens before each is read."""

    def __init__(self, *steps: tuple[Callable[[], object], str]) -> None:
        self.steps = list(steps)

    def isatty(self) -> bool:
        return False

    def readline(self) -> str:
        if not self.steps:
            return ""
        before, line = self.steps.pop(0)
        before()
        return line


def jobspec_of(cores: int) -> str:
    slot = {"type": "slot", "count": 1, "label": "t", "with": [{"type": "core", "count": cores}]}
    return json.dumps({"version": 1, "resources": [slot], "tasks": [], "attributes": {}})


@pytest.mark.parametrize(
    ("first", "second", "cores", "read"),
    [
        (-100, -100, 1, 1),
        (-100, -50, 2, 2),
        # Both so late that files changed one after the other may have the same time.
        (100, 100, 2, 2),
    ],
)
def test_a_file_is_read_again_if_it_may_have_changed(
    first: int,
    second: int,
    cores: int,
    read: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The times of change are in seconds from now; the second text asks for so many cores."""
    (tmp_path / "R.json").write_text(json.dumps(R))
    file = tmp_path / "job.json"
    now = time.time_ns()
    texts: list[str] = []
    parse = jobspec_text.read

    def parsed(text: str, graph: Graph) -> JobRequest:
        texts.append(text)
        return parse(text, graph)

    def write(cores: int, changed: int) -> None:
        file.write_text(jobspec_of(cores))
        os.utime(file, ns=(now, now + changed * 10**9))

    monkeypatch.setattr(jobspec_text, "read", parsed)
    lines = Lines(
        (lambda: write(1, first), f"match allocate {file}\n"),
        (lambda: write(cores, second), f"match allocate {file}\n"),
    )
    options = ["-L", str(tmp_path / "R.json"), "-f", "rv1exec", "-d"]
    assert resource_query.main(options, cast(TextIO, lines)) == 0
    assert len(texts) == read
    assert capsys.readouterr().out.count("core") == 1 + cores


def test_a_file_that_has_gone_is_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "R.json").write_text(json.dumps(R))
    file = tmp_path / "job.json"
    file.write_text(jobspec_of(1))
    os.utime(file, (1000, 1000))
    lines = Lines((lambda: None, f"match allocate {file}\n"), (file.unlink, f"match allocate {file}\n"))
    assert resource_query.main(["-L", str(tmp_path / "R.json"), "-f", "rv1exec", "-d"], cast(TextIO, lines)) == 0
    assert capsys.readouterr().err == f"ERROR: can't open {file}\n"


def test_a_request_is_read_anew_for_another_graph() -> None:
    """Units are those of the graph, which may change."""
    scheduler = Scheduler(rv1.read(json.dumps(R)), "first")
    out: list[str] = []
    read: list[str] = []

    def open_file(name: str) -> str:
        read.append(name)
        return jobspec_of(1)

    engine = Commands(scheduler, WRITERS["simple"], out.append, out.append, open_file, version=lambda name: 1)
    for line in ("match allocate job", "match allocate job", "set-property /cluster0/n0 a=b", "match allocate job"):
        engine.run(line)
    assert len(read) == 2
