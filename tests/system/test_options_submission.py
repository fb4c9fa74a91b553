"""Options that `flux run`, `submit`, `bulksubmit`, `batch` and `alloc` share: each of them by what it changes."""

from __future__ import annotations

from typing import Any

import pytest
from option_lines import Line, answers, check, like, names

ID = "ƒ[1-9A-Za-z]+"
# Every option at once, where each leaves its own mark in the jobspec.
GIVEN = (
    "-N1 --exclusive --bank=b --begin-time=+1h --cwd=/x --dependency=afterany:$(cat held) --env-remove='*' --env=A=1 "
    "--error=e --input=i --output=o --label-io --unbuffered --requires=rank:0 --rlimit='-*' --rlimit=nofile=7 "
    "--setattr=user.b=2 --signal=USR1@9 --taskmap=cyclic --time-limit=2m --job-name=n --add-file=f=rules"
)
FILTER = (
    ".resources[0].exclusive, .attributes.user.b, (.attributes.system|[.bank,.cwd,.environment,.duration,.job.name],"
    "[.constraints,.files.f.data], [.dependencies[]|.scheme], (.shell.options|[.input.stdin.path,.signal],"
    "[.output.stdout,.output.stderr], [.rlimit,.taskmap.scheme]))"
)
MARKS = (
    'true\n2\n["b","/x",{"A":"1"},120,"n"]\n[{"ranks":["0"]},"rules\\n"]\n["afterany","begin-time"]\n'
    '["i",{"signum":10,"timeleft":9}]\n'
    '[{"type":"file","path":"o","label":true,"buffer":{"type":"none"}},'
    '{"type":"file","path":"e","label":true,"buffer":{"type":"none"}}]\n[{"nofile":7},"cyclic"]\n'
)
# Where tasks go: (options, jq filter on the jobspec, what it gives).
TASKS_BY_RESOURCE = [
    ("-N1 --cores=2", ".resources[0].with[0].with[0].count", "2"),
    ("-N1 --tasks-per-core=2", '.attributes.system.shell.options."per-resource"', '{"type":"core","count":2}'),
    ("-N1 --tasks-per-node=3", '.attributes.system.shell.options."per-resource"', '{"type":"node","count":3}'),
]
# The submit event tells what the jobspec does not: debug is 2, waitable 4, novalidate 8.
TOLD = "--debug --flags=novalidate,waitable --urgency=20"
SUBMITTED = "flux job eventlog $(flux job last) | grep -o 'submit.*'"
EVENT = "submit userid=\\d+ urgency=20 flags=14 version=1\n"

SHARED = [
    Line("echo rules >rules; flux submit --urgency=hold true >held"),
    Line(f"flux run {GIVEN} --dry-run true | jq -c '{FILTER}'", MARKS),
    Line(f"flux submit {GIVEN} --dry-run true | jq -c '{FILTER}'", MARKS),
    Line(f"flux batch {GIVEN} --dry-run --wrap true | jq -c '{FILTER}'", MARKS),
    Line(f"flux alloc {GIVEN} --dry-run true | jq -c '{FILTER}'", MARKS),
    Line(
        f"flux bulksubmit {GIVEN} --urgency=hold true ::: a >id; flux job info --original $(cat id) jobspec | "
        f"jq -c '{FILTER}'; flux cancel $(cat id)",
        MARKS,
    ),
    Line("flux run --dry-run --queue=q true | jq -r .attributes.system.queue", "q\n"),
    Line("flux submit --dry-run --queue=q true | jq -r .attributes.system.queue", "q\n"),
    Line("flux batch --dry-run --queue=q -n1 --wrap true | jq -r .attributes.system.queue", "q\n"),
    Line("flux alloc --dry-run --queue=q -n1 true | jq -r .attributes.system.queue", "q\n"),
    Line("flux bulksubmit --queue=q true ::: a", like(".*'q' is not a valid queue\n"), 1),
    *[
        line
        for given, path, value in TASKS_BY_RESOURCE
        for line in (
            Line(f"flux run {given} --dry-run true | jq -c '{path}'", value + "\n"),
            Line(f"flux submit {given} --dry-run true | jq -c '{path}'", value + "\n"),
            Line(
                f"flux bulksubmit {given} --urgency=hold true ::: a >id; "
                f"flux job info --original $(cat id) jobspec | jq -c '{path}'; flux cancel $(cat id)",
                value + "\n",
            ),
        )
    ],
    Line(f"flux run {TOLD} true; {SUBMITTED}", like(EVENT)),
    Line(f"flux submit {TOLD} true; {SUBMITTED}", like(f"{ID}\n{EVENT}")),
    Line(f"flux bulksubmit {TOLD} true ::: a; {SUBMITTED}", like(f"{ID}\n{EVENT}")),
    Line(f"flux batch {TOLD} -n1 --wrap true; {SUBMITTED}", like(f"{ID}\n{EVENT}")),
    Line(f"flux alloc {TOLD} -n1 true; {SUBMITTED}", like(EVENT)),
]

OWN = [
    Line("flux batch --quiet -n1 --wrap true; flux job wait-event -q $(flux job last) clean"),
    Line("flux batch --verbose -n1 --wrap true", like(f"{ID}\n")),
    Line(
        "flux batch --conf=a.b=1 --dry-run -n1 --wrap true | jq -c '.attributes.system.files.\"conf.json\".data'",
        '{"a":{"b":1}}\n',
    ),
    # Copies of one job, which are not told their number; what is said of each goes to a file.
    Line(
        "flux bulksubmit --bcc=1-2 --log=log{}.{cc} --watch sh -c 'echo {}-$FLUX_JOB_CC' ::: a; head log*",
        like(f"==> loga.1 <==\n{ID}\na-\n\n==> loga.2 <==\n{ID}\na-\n"),
    ),
]

MANY_PROGRAMS = [
    Line(
        "printf '1-2 echo task %%t %%o\n* sh -c \"exit 3\" # and so on\n' >programs; "
        "flux multi-prog --dry-run 0-2 programs; flux run -n2 --label-io flux multi-prog programs 2>err || echo $?",
        "0: sh -c 'exit 3'\n1: echo task 1 0\n2: echo task 2 1\n1: task 1 0\n3\n",
    ),
]

LINES = [*SHARED, *OWN, *MANY_PROGRAMS]


@pytest.fixture(scope="module")
def submission_answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return answers(LINES, tmp_path_factory.mktemp("submission"))


@pytest.mark.parametrize("index", range(len(LINES)), ids=names(LINES))
def test_shared_submission_option_has_its_effect(index: int, submission_answers: list[dict[str, Any]]) -> None:
    check(LINES[index], submission_answers[index])
