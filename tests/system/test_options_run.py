"""Options of `flux run`, `submit`, `bulksubmit`, `batch` and `alloc`: each shown by what it changes."""

from __future__ import annotations

from typing import Any

import pytest
from option_lines import Line, answers, check, like, names

ID = "ƒ[1-9A-Za-z]+"
JOBSPEC = "flux job info --original $(flux job last) jobspec"

# (options, jq filter on the jobspec, what it gives) for every command that submits tasks
TASK_OPTIONS = [
    ("--ntasks=3", ".resources[0].count", "3"),
    ("--ntasks=2 --cores-per-task=2", "[.resources[0].count,.resources[0].with[0].count]", "[2,2]"),
    ("--gpus-per-task=2", "[.resources[0].with[]|.type,.count]", '["core",1,"gpu",2]'),
    ("--nodes=2 --gpus-per-node=1", "[.resources[0].with[0].with[]|.type,.count]", '["core",1,"gpu",1]'),
    ("--shape=slot=2/core=3", ".resources[0]|[.type,.count,.with[0].count]", '["slot",2,3]'),
    ("--preemptible-after=5m", '.attributes.system."preemptible-after"', "300"),
    ("--setopt=a.b=2 --setopt=c", ".attributes.system.shell.options|[.a,.c]", '[{"b":2},1]'),
    ("--env='-*' --env-file=rules", ".attributes.system.environment|[.A,.B]", '["1","1/2"]'),
]
# The same for the commands that submit an instance.
SLOT_OPTIONS = [
    ("--nslots=3", ".resources[0].count", "3"),
    ("--nslots=2 --cores-per-slot=2", "[.resources[0].count,.resources[0].with[0].count]", "[2,2]"),
    ("--nslots=1 --gpus-per-slot=2", "[.resources[0].with[]|.type,.count]", '["core",1,"gpu",2]'),
    ("-n1 --broker-opts=-v,-Sa=b --broker-opts=-Sc=d", ".tasks[0].command[2:5]", '["-v","-Sa=b","-Sc=d"]'),
    ("-n1 --preemptible-after=2", '.attributes.system."preemptible-after"', "2"),
    ("-n1 --setopt=a.b=2", ".attributes.system.shell.options.a.b", "2"),
    ("-n1 --env='-*' --env-file=rules", ".attributes.system.environment|[.A,.B]", '["1","1/2"]'),
]
HELD = "--urgency=hold true ::: a >id"

DESCRIBING = [
    Line("printf '# rules\\nA=1\\nB=$A/2\\n' >rules"),
    *[
        Line(f"flux {command} --dry-run {given} true | jq -c '{path}'", value + "\n")
        for command in ("run", "submit")
        for given, path, value in TASK_OPTIONS
    ],
    *[
        Line(f"flux bulksubmit {given} {HELD}; {JOBSPEC} | jq -c '{path}'", value + "\n")
        for given, path, value in TASK_OPTIONS
    ],
    *[
        Line(f"flux {command} --dry-run {given} true | jq -c '{path}'", value + "\n")
        for command in ("batch --wrap", "alloc")
        for given, path, value in SLOT_OPTIONS
    ],
    Line("flux run --shape=slot=x/core true", like("flux-run: ERROR: shape 'slot=x/core': .*\n"), 1),
    Line("flux run --preemptible-after=soon true", like("flux-run: ERROR: .*'soon'.*\n"), 1),
    Line("flux run --env-file=nosuch true", like("flux-run: ERROR: .*nosuch.*\n"), 1),
]

BULK = [
    Line(
        "flux bulksubmit --dry-run --define=p2='2**int(x)' -n {.p2} hostname ::: 0 1",
        "bulksubmit: submit -n1 hostname\nbulksubmit: submit -n2 hostname\n",
    ),
    Line(
        "flux bulksubmit --dry-run --define=up='x.upper()' {.up}{1.up} ::: a :::+ b",
        "bulksubmit: submit AB\n",
    ),
    Line(
        "flux bulksubmit --dry-run {.p2} ::: a",
        "flux-bulksubmit: ERROR: {.p2}: p2 is not defined: use --define=p2=CODE\n",
        1,
    ),
    Line("flux bulksubmit --dry-run --define=p2 {.p2} ::: a", like("flux-bulksubmit: ERROR: --define: 'p2'.*\n"), 1),
    Line(
        "printf 'a b,c' | flux bulksubmit --dry-run --sep=, x {}", "bulksubmit: submit x a b\nbulksubmit: submit x c\n"
    ),
    Line(
        "printf 'a b\\n c' >in; flux bulksubmit --dry-run --sep=none x {} :::: in",
        "".join(f"bulksubmit: submit x {value}\n" for value in "abc"),
    ),
    Line(
        "flux bulksubmit --dry-run --shuffle {seq}:{} ::: 0 1 2 3 | sort",
        "".join(f"bulksubmit: submit {n}:{n}\n" for n in range(4)),
    ),
    Line(
        "echo '{' >bad.json; flux submit --dry-run --setattr=^user.x=bad.json true",
        like("flux-submit: ERROR: --setattr: bad.json: not JSON: .*"),
        1,
    ),
    Line(
        "seq 40 >in; flux bulksubmit --dry-run --shuffle {} :::: in >out; sed 's/.* //' out | cmp -s - in || "
        "sed 's/.* //' out | sort -n | cmp - in && echo shuffled",
        "shuffled\n",
    ),
    Line(
        "flux bulksubmit --dry-run x {0}{1} ::: 1 2 3 :::+ a b",
        "bulksubmit: submit x 1a\nbulksubmit: submit x 2b\nbulksubmit: submit x 3a\n",
    ),
    Line("flux bulksubmit --dry-run --cc=1-{} -l x {}{cc} ::: 3", "bulksubmit: submit --label-io --cc=1-3 x 3{cc}\n"),
    Line("flux bulksubmit --quiet --watch --cc=7 echo {}-{cc} ::: 1", "1-7\n"),
    # what is followed, and where it is told
    *[
        Line(
            f"flux {command} --log-stderr=err --watch sh -c 'echo out; echo problem >&2' {inputs}; cat err",
            like(f"{ID}\nout\nproblem\n"),
        )
        for command, inputs in (("submit", ""), ("bulksubmit", "::: {0}"))
    ],
    *[
        Line(
            f"script -qec 'flux {command} --cc=1-2 --quiet --wait {option} true {inputs}' /dev/null | cat",
            like(f"(?=.*\033\\[24;1H.*PD:0 +R:0 +CD:2 +F:0 .*│100.0% {rate}).*"),
        )
        for command, inputs in (("submit", ""), ("bulksubmit", "::: a"))
        for option, rate in (("--progress", r"\d+:\d\d:\d\d"), ("--progress --jps", r"[0-9.]+ job/s"))
    ],
    Line(
        "flux submit --progress --quiet --wait true | cat",
        "flux-submit: WARNING: stdout is not a terminal. Ignoring --progress option\n",
    ),
    Line(
        "script -qec 'flux submit --cc=1-2 --quiet --progress sleep inf' /dev/null | cat; flux cancel --all --quiet",
        like(".*2 jobs │█+│100.0% .*"),
    ),
    # each job waits for what its own arguments say, and shows nothing after it
    Line(
        "flux bulksubmit -vvv --quiet --wait-event={} --log-stderr={}.err true ::: start exec.shell.init; "
        "tail -qn1 start.err exec.shell.init.err | cut -d' ' -f3",
        "start\nexec.shell.init\n",
    ),
    Line(
        "flux bulksubmit --dry-run -N {} -n {} --env=A --env=B echo {{x}} ::: 2",
        "bulksubmit: submit -n2 -N2 --env=['A', 'B'] echo {{x}}\n",
    ),
    Line("flux bulksubmit --dry-run -n {1} x ::: 0", like(".*Invalid replacement .1. in -n: .*"), 1),
    Line("flux bulksubmit --dry-run {f} ::: 0", like(".*Replacement key 'f' not found in command: .*"), 1),
]

LINES = [*DESCRIBING, *BULK]


@pytest.fixture(scope="module")
def run_answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return answers(LINES, tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize("index", range(len(LINES)), ids=names(LINES))
def test_submission_option_has_its_effect(index: int, run_answers: list[dict[str, Any]]) -> None:
    check(LINES[index], run_answers[index])
