"""`headrace simulate` as a user runs it: traces, the table, JSON and starts that come out, and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pytest

from headrace.cli.simulate.record import line_of
from headrace.formats.spec.eventlog import Event

# Two nodes. 1 takes both, 2 both after it; 3 arrives with 2 and is short, but nothing is free before 1 ends.
TRACE = """\
; MaxNodes: 2
; MaxProcs: 2
1  0 -1 100 2 -1 -1 2 100 -1 1 1 -1 -1 -1 -1 -1 -1
2 10 -1 100 2 -1 -1 2 100 -1 1 1 -1 -1 -1 -1 -1 -1
3 20 -1  50 1 -1 -1 1  50 -1 1 2 -1 -1 -1 -1 -1 -1
"""


def cells(stdout: str) -> dict[str, list[str]]:
    """The table's figures by label."""
    return {line[:24].strip(): line[24:].split() for line in stdout.splitlines()[3:] if line.strip()}


def test_policies_stand_side_by_side_on_the_machine_of_the_header(flux):
    outcome = flux("simulate", "-", "--policy", "fcfs,easy", stdin=TRACE.encode())
    assert outcome.rc == 0, outcome.stderr
    assert outcome.stdout.splitlines()[:2] == ["machine: 2 nodes, 2 cores, 0 GPUs", "trace: 3 jobs"]
    table = cells(outcome.stdout)
    assert table[""] == ["fcfs", "easy"]
    assert table["jobs run"] == ["3", "3"]
    assert table["makespan, s"] == ["250", "250"]
    assert table["core utilisation"] == ["90.00", "%", "90.00", "%"]
    assert table["wait, s: max"] == ["180", "180"]


def test_limit_and_gpus_of_the_machine(flux):
    outcome = flux("simulate", "-", "--policy=fcfs", "--limit=2", "--nodes=3", "--gpus=2", stdin=TRACE.encode())
    assert outcome.stdout.splitlines()[:2] == ["machine: 3 nodes, 3 cores, 6 GPUs", "trace: 2 jobs"]


def test_the_seed_chooses_the_jobs_that_are_made_up(flux):
    made = [flux("simulate", "--synthetic=5", "--nodes=4", f"--seed={seed}", "--record=-").stdout for seed in (1, 2, 1)]
    assert made[0] == made[2] != made[1]
    assert made[0]


def test_the_match_policy_chooses_the_nodes(flux):
    nodes = []
    for policy in ("low", "high"):
        outcome = flux(
            "simulate",
            "-",
            "--policy=fcfs",
            "--nodes=4",
            f"--match-policy={policy}",
            "--starts=-",
            stdin=TRACE.encode(),
        )
        nodes.append([row["nodes"] for row in csv.DictReader(io.StringIO(outcome.stdout))])
    assert nodes[0] != nodes[1]


def test_with_fair_share_the_user_who_has_used_less_comes_first(flux):
    # Jobs 3 and 4 wait for job 2 to leave the only node; the user of 3 has had job 1.
    trace = """\
; MaxNodes: 1
; MaxProcs: 1
1   0 -1 100 1 -1 -1 1 100 -1 1 1 -1 -1 -1 -1 -1 -1
2  90 -1 100 1 -1 -1 1 100 -1 1 3 -1 -1 -1 -1 -1 -1
3 110 -1 100 1 -1 -1 1 100 -1 1 1 -1 -1 -1 -1 -1 -1
4 120 -1 100 1 -1 -1 1 100 -1 1 2 -1 -1 -1 -1 -1 -1
"""
    plain = flux("simulate", "-", "--policy=fcfs", "--starts=-", stdin=trace.encode())
    fair = flux("simulate", "-", "--policy=fcfs", "--fair-share=1h", "--starts=-", stdin=trace.encode())
    rows = [csv.DictReader(io.StringIO(outcome.stdout)) for outcome in (plain, fair)]
    assert [[(row["id"], row["start"]) for row in found] for found in rows] == [
        [("1", "0"), ("2", "100"), ("3", "200"), ("4", "300")],
        [("1", "0"), ("2", "100"), ("4", "200"), ("3", "300")],
    ]


def test_starts_on_stdout_are_alone_there(flux):
    outcome = flux("simulate", "--synthetic=3", "--nodes=1", "--policy=easy", "--starts=-")
    assert [row["policy"] for row in csv.DictReader(io.StringIO(outcome.stdout))] == ["easy"] * 3
    assert "makespan" in outcome.stderr
    both = flux("simulate", "--synthetic=3", "--nodes=1", "--starts=-", "--json")
    assert (both.rc, both.stdout) == (2, "")


def test_starts_and_figures_can_be_read_by_programs(flux, tmp_path):
    (tmp_path / "trace.swf.gz").write_bytes(gzip.compress(TRACE.encode()))
    outcome = flux("simulate", "trace.swf.gz", "--nodes=4", "--policy=easy,fcfs", "--json", "--starts=starts.csv")
    found = json.loads(outcome.stdout)
    assert found["machine"] == {"node": 4, "core": 4, "gpu": 0}
    assert found["policies"]["easy"]["wait"]["max"] == 80
    assert found["policies"]["easy"]["utilisation"] == {"core": 450 / (4 * 150)}
    rows = list(csv.DictReader(io.StringIO((tmp_path / "starts.csv").read_text())))
    assert [(row["id"], row["start"], row["end"]) for row in rows if row["policy"] == "fcfs"] == [
        ("1", "0", "100"),
        ("2", "10", "110"),
        ("3", "100", "150"),
    ]
    assert {row["nodes"] for row in rows if row["id"] in "12"} == {"node[0-1]", "node[2-3]"}


def test_bad_lines_are_named_and_the_rest_is_simulated(flux, tmp_path):
    (tmp_path / "trace").write_text(TRACE + "4 x\n" + TRACE.replace("\n1", "\n9").splitlines()[2].replace("100", "?"))
    outcome = flux("simulate", "trace", "--policy=fcfs")
    assert outcome.rc == 1
    assert outcome.stderr == (
        "trace:6: a job has 18 fields, this line has 2\ntrace:7: field 4 (run time): must be a number, not '?'\n"
    )
    assert cells(outcome.stdout)["jobs run"] == ["3"]


def test_jobs_that_never_run_are_listed(flux):
    outcome = flux("simulate", "-", "--nodes=1", "--policy=easy", stdin=TRACE.encode())
    assert outcome.rc == 0
    assert "easy: 2 jobs never ran\n  1: 2 node wanted, 1 can be had in the whole graph\n  2: " in outcome.stdout
    assert cells(outcome.stdout)["never ran"] == ["2"]


def test_made_up_jobs_are_the_same_each_time_and_can_be_kept(flux, tmp_path):
    made = ["--synthetic=40", "--seed=3", "--nodes=4", "--cores=4"]
    assert flux("simulate", *made, "--record=kept.swf").stdout == ""
    at_once = flux("simulate", *made, "--policy=easy", "--starts=a.csv")
    from_file = flux("simulate", "kept.swf", "--nodes=4", "--cores=4", "--policy=easy", "--starts=b.csv")
    assert (at_once.rc, from_file.rc) == (0, 0)
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


@pytest.mark.parametrize("policy", ["fcfs", "easy", "hybrid", "conservative"])
def test_on_nodes_of_one_core_it_is_all_the_same_what_a_processor_is(flux, tmp_path, policy):
    made = ["--synthetic=60", "--nodes=8", f"--policy={policy}"]
    for name, unit in (("core", ["--unit=core"]), ("node", ["--unit=node"]), ("own", [])):
        assert flux("simulate", *made, *unit, f"--starts={name}.csv").rc == 0
    starts = {
        name: [line.split(",")[:4] for line in (tmp_path / f"{name}.csv").read_text().splitlines()]
        for name in ("core", "node", "own")
    }
    assert starts["core"] == starts["node"] == starts["own"]


def test_fair_share_serves_who_has_had_little(flux):
    # One user fills the machine and has a long line; another comes later, with one job.
    line = "{} {} -1 100 -1 -1 -1 4 100 -1 1 {} -1 -1 -1 -1 -1 -1\n"
    trace = "".join(line.format(n, 0, 1) for n in range(1, 11)) + line.format(11, 450, 2)
    for option, at in (([], 1000), (["--fair-share=1d"], 500)):
        argv = ["simulate", "-", "--nodes=4", "--policy=fcfs", "--starts=-", *option]
        outcome = flux(*argv, stdin=trace.encode())
        assert f"fcfs,11,{at},{at + 100},node[0-3]\n" in outcome.stdout


def test_running_jobs_count_from_the_next_computation_of_fair_share(flux):
    # User 1's job 1 runs on one of two nodes until 1000. Job 2 keeps the other until 100, when jobs 3 and 4 wait.
    line = "{} {} -1 {} -1 -1 -1 1 2000 -1 1 {} -1 -1 -1 -1 -1 -1\n"
    jobs = ((1, 0, 1000, 1), (2, 0, 100, 3), (3, 10, 50, 1), (4, 20, 50, 2))
    trace = "".join(line.format(*job) for job in jobs).encode()
    argv = ["-", "--nodes=2", "--policy=fcfs", "--starts=-", "--fair-share=1d"]
    booked = flux("simulate", *argv, stdin=trace).stdout
    running = flux("simulate", *argv, "--count-running", "--fair-share-interval=30s", stdin=trace).stdout
    rare = flux("simulate", *argv, "--count-running", "--fair-share-interval=1h", stdin=trace).stdout
    assert "fcfs,3,100," in booked and booked == rare
    assert "fcfs,4,100," in running


def test_usage_is_compared_with_the_shares_of_banks(flux, tmp_path):
    # Users 1 and 2 have had one job each when jobs 3 and 4 come.
    line = "{} {} -1 100 -1 -1 -1 1 100 -1 1 {} -1 -1 -1 -1 -1 -1\n"
    trace = "".join(line.format(*job) for job in ((1, 0, 1), (2, 0, 2), (3, 0, 3), (4, 150, 1), (5, 150, 2)))
    options = ["--nodes=1", "--policy=fcfs", "--starts=-", "--fair-share=1d"]
    starts = {}
    for shares in ((9, 1), (1, 9)):
        users = [{"username": str(user), "shares": share} for user, share in zip((1, 2, 3), (*shares, 9))]
        (tmp_path / "banks.json").write_text(json.dumps({"root": {"bank": "root", "children": users}}))
        starts[shares] = flux("simulate", "-", "--banks=banks.json", *options, stdin=trace.encode()).stdout
    assert "fcfs,4,300," in starts[9, 1]
    assert "fcfs,5,300," in starts[1, 9]


def test_depths_are_those_of_the_scheduler(flux):
    made = ["--synthetic=60", "--nodes=4", "--cores=2", "--policy=hybrid", "--starts=-"]
    one, many = (flux("simulate", *made, f"--reservation-depth={n}").stdout for n in (1, 60))
    assert one != many
    assert flux("simulate", *made).stdout == many
    shallow, deep = (flux("simulate", *made, "--reservation-depth=1", f"--queue-depth={n}").stdout for n in (1, 60))
    assert deep == one != shallow


def test_a_graph_may_come_from_a_file(flux, tmp_path):
    r = {"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-3"}}], "nodelist": ["n[0-1]"]}}
    (tmp_path / "R.json").write_text(json.dumps(r))
    outcome = flux("simulate", "-", "--graph=R.json", "--unit=node", "--policy=fcfs", stdin=TRACE.encode())
    assert outcome.stdout.startswith("machine: 2 nodes, 8 cores, 0 GPUs\n")
    assert cells(outcome.stdout)["makespan, s"] == ["250"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nosuch"], "headrace-simulate: ERROR: nosuch: No such file or directory\n"),
        (["-"], "headrace-simulate: ERROR: standard input: no job in it can be simulated\n"),
        (["-", "--policy=lifo"], "queue policy 'lifo': must be one of fcfs, easy, hybrid, conservative\n"),
        (["--synthetic=3"], "no description of the machine: give --nodes (and --cores, --gpus) or --graph\n"),
        (["--synthetic=3", "--nodes=2", "--match-policy=x"], "match policy: must be one of first"),
        (["--synthetic=3", "--graph=nosuch"], "nosuch: No such file or directory\n"),
        (["--synthetic=3", "--graph=g", "--nodes=1"], "leave out --nodes, --cores and --gpus\n"),
        (["--synthetic=3", "--nodes=1", "--starts=no/such"], "no/such: No such file or directory\n"),
        ([], "give either TRACE or --synthetic\n"),
        (["-", "--nodes=0"], "'0' must be a positive integer\n"),
        (["-", "--record=x"], "reads none: leave out TRACE\n"),
        (["--synthetic=3", "--nodes=2", "--fair-share=0"], "half-life must be a positive number of seconds, not 0.0\n"),
        (["--synthetic=3", "--nodes=2", "--fair-share=x"], "invalid"),
        (["--synthetic=3", "--nodes=2", "--banks=x"], "--banks needs --fair-share\n"),
        (["--synthetic=3", "--nodes=2", "--count-running"], "--count-running needs --fair-share\n"),
        (
            ["--synthetic=3", "--nodes=2", "--fair-share-interval=1s"],
            "--fair-share-interval needs --fair-share\n",
        ),
        (["--synthetic=3", "--nodes=2", "--fair-share=1d", "--banks=x"], "input file not found: x\n"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(flux, argv, message):
    outcome = flux("simulate", *argv)
    assert outcome.rc != 0
    assert message in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_record_is_made_of_the_jobs_own_events():
    jobspec = {
        "version": 1,
        "resources": [{"type": "slot"}],
        "attributes": {"system": {"duration": 60, "environment": {"A": "1"}, "files": {"x": 1}, "queue": "q"}},
    }
    events = [
        Event(100.0, "submit", {"userid": 0, "urgency": 16, "flags": 0}),
        Event(101.0, "urgency", {"userid": 0, "urgency": 20}),
        Event(102.5, "alloc", None),
        Event(103.0, "start", None),
        Event(110.25, "finish", {"status": 0}),
        Event(111.0, "clean", None),
    ]
    assert line_of(5, jobspec, events) == {
        "id": 5,
        "user": "root",
        "submit": 100.0,
        "start": 103.0,
        "runtime": 7.25,
        "urgency": 20,
        "jobspec": {**jobspec, "attributes": {"system": {"duration": 60, "queue": "q"}}},
    }
    assert line_of(5, jobspec, events[:2] + events[5:]) is None
    # A user who has no name any more.
    events[0] = Event(100.0, "submit", {"userid": 4_000_000_123, "urgency": 16, "flags": 0})
    assert line_of(5, jobspec, events)["user"] == "4000000123"


def test_a_page_shows_the_figures_the_machine_and_the_waits(flux, tmp_path):
    file = tmp_path / "page.html"
    outcome = flux("simulate", "-", "--policy=fcfs,easy", f"--html={file}", stdin=TRACE.encode())
    assert outcome.rc == 0 and "core utilisation" in outcome.stdout
    page = file.read_text()
    assert page.count("<svg ") == 4 and "Use of the machine, fcfs" in page and "Waits by size, easy" in page
    assert "machine: 2 nodes, 2 cores, 0 GPUs. trace: 3 jobs." in page and "<td>90.00 %</td>" in page
    assert "src=" not in page and "href=" not in page and "the longest wait is 3 min" in page
    refused = flux("simulate", "-", "--html=-", stdin=TRACE.encode())
    assert refused.rc == 2 and "give it a file" in refused.stderr
