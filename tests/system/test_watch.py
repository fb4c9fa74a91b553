"""`flux watch`: which jobs it follows, what it tells of them, and its exit status."""

from __future__ import annotations

import pytest
from instance import FLUX
from option_lines import Line, answers, check, like, names
from terminal import terminal

ID = "ƒ[1-9A-Za-z]+"
_END = "flux-watch: INFO: Watching %d jobs\n"

LINES = [
    Line(
        "flux watch",
        "flux-watch: ERROR: At least one job selection option is required\n"
        "Try 'flux watch --help' for more information.\n",
        1,
    ),
    Line("flux watch --all", "flux-watch: INFO: No matching jobs\n"),
    # two that wait, and run while they are watched
    Line("flux submit --urgency=hold --cc=1-2 sh -c 'echo out{cc}; echo err{cc} >&2' >ids"),
    Line(
        "flux watch --active -vv >seen 2>&1 & until grep -qs Watching seen; do sleep .02; done; "
        "for id in $(cat ids); do flux job urgency $id default; done; wait; grep -c -e ^out -e ^err seen; "
        "grep -c -e ': start' -e ': clean' seen; head -1 seen",
        "4\n4\nflux-watch: INFO: Watching 2 jobs\n",
    ),
    Line("flux watch -a", "flux-watch: INFO: No matching jobs\n"),
    Line("flux watch --all 2>/dev/null | sort", "out1\nout2\n"),
    Line("flux watch $(head -1 ids)", "out1\nerr1\n"),
    Line("flux watch -A --label-io 2>/dev/null | sort", like(f"({ID}: 0: out[12]\n){{2}}")),
    Line(
        "flux watch $(tail -1 ids) --verbose 2>&1 | sort",
        like(_END % 1 + "out2\nerr2\n" + f"|.*{ID}: .*complete: status=0\n.*"),
    ),
    Line("flux watch f123", "flux-watch: ERROR: JobID ƒ23 unknown\nflux-watch: INFO: No matching jobs\n"),
    Line(
        "flux watch -A --since=now $(head -1 ids) 2>&1 | head -1",
        "flux-watch: WARNING: Filtering options ignored with jobid list\n",
    ),
    # the highest exit code; a job that never ran has 1
    Line("flux submit --quiet sh -c 'exit 2'; flux cancel $(flux submit --urgency=hold true); flux queue drain"),
    Line("flux watch --all 2>&1 | tail -1; flux watch --all >seen 2>&1", like(".*"), 2),
    Line("flux watch --filter=canceled", like(f"{ID}: .*exception: type=cancel note=.*\n"), 1),
    Line("flux watch -f completed,canceled -v 2>&1 | head -1", _END % 3),
    Line("flux watch -f bubbling", "flux-watch: ERROR: Invalid filter specified: bubbling\n", 1),
    Line("flux watch -v --all --count=1 2>&1 | head -1", _END % 1),
    Line(
        "flux watch -v --since=-1h 2>&1 | head -1; flux watch --since=now",
        _END % 4 + "flux-watch: INFO: No matching jobs\n",
    ),
    Line("flux watch -v --since=0 -f failed 2>&1 | head -1", _END % 1),
    Line("flux watch --since=-1g", "flux-watch: ERROR: --since: invalid value '-1g'\n", 2),
    Line("flux watch --since=+1d", "flux-watch: ERROR: --since=+1d appears to be in the future\n", 2),
    Line(
        "flux watch --progress --jps -f completed 2>&1 >/dev/null | head -1",
        "flux-watch: WARNING: stdout is not a tty. Ignoring --progress option\n",
    ),
    Line(
        "id=$(flux submit head -c 600 /dev/urandom); flux watch $id >a; flux job attach $id >b; "
        "cmp a b; test $(stat -c %s a) = 600",
    ),
    # An interrupt ends it, and not the job.
    Line(
        "id=$(flux submit sh -c 'echo up; sleep inf'); flux watch $id >up & until test -s up; do sleep .02; done; "
        "kill -INT $!; wait $!; echo $?; flux jobs -no {state} $id; flux cancel $id",
        "130\nRUN\n",
    ),
]


@pytest.fixture(scope="module")
def watch_answers(tmp_path_factory):
    return answers(LINES, tmp_path_factory.mktemp("watch"))


@pytest.mark.parametrize("index", range(len(LINES)), ids=names(LINES))
def test_each_option_has_its_effect(index, watch_answers):
    check(LINES[index], watch_answers[index])


@pytest.mark.parametrize(("option", "right"), [("", r"0:00:"), ("--jps ", "job/s")])
def test_progress_counts_jobs_that_ended_before(option, right):
    jobs = "flux submit --quiet --cc=1-3 true; flux submit --quiet false; flux queue drain"
    script = f"{jobs}; flux watch -A --progress {option}"
    with terminal(FLUX, "start", script) as term:
        term.expect("CD:3   F:1 ")
        term.expect(f"100.0% {right}" if not option else right)
        assert term.wait() == 1
