"""Options of `flux start`, `run`, `submit`, `bulksubmit`, `batch` and `alloc`: each shown by what it changes."""

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

STARTING = [
    Line(
        "flux start -vX -o -Sa=b,--conf=x.y=1 --broker-opts=-Sc=d -Se=f prog arg",
        like("flux-start: .*flux broker -Sa=b --conf=x.y=1 -Sc=d -Se=f prog arg\n"),
    ),
    Line(
        "flux start --noexec --verbose -s2 -cpath prog",
        like(
            "flux-start: 0: .*flux broker -cpath (--setattr=rundir=.*/flux-XXXXXX) prog\n"
            "flux-start: 1: .*flux broker -cpath \\1\n"
        ),
    ),
    Line("flux start --noexec sh -c 'echo started'", ""),
    Line("flux start -v sh -c 'echo started'", like("started\nflux-start: .*flux broker sh -c echo started\n")),
    Line(
        "flux start -v2 -X --sysconfig prog", like("flux-start: .*flux broker --config-path=/.*/system/conf.d prog\n")
    ),
    # what the broker's options take as their values may follow in the command
    Line("flux start -o --conf resource.noverify=true flux config get resource.noverify", "true\n"),
    Line(
        "mkdir conf; echo x.y=4 >conf/a.toml; flux start -o --config conf -Slog-ring-size=100 sh -c "
        "'flux config get x.y; flux getattr log-ring-size' 2>/dev/null",
        "4\n100\n",
    ),
    Line("flux start --wrap=env,WRAPPED=yes printenv WRAPPED", "yes\n"),
    Line("flux start -s2 --wrap=env,WRAPPED=yes sh -c 'printenv WRAPPED; flux getattr size'", "yes\n2\n"),
    Line("flux start -s2 --verbose=2 true 2>&1 | grep -c '^[01]: [CS]: cmd=init.* pmi_version=1 '", "2\n"),
    Line(
        "flux broker -v true", "flux-broker: boot: rank=0 size=1\nflux-broker: parent: none\nflux-broker: child: none\n"
    ),
    Line("flux broker -vv true 2>&1 | tail -1", "flux-broker: entering event loop\n"),
    Line(
        "flux start -s2 -o,--verbose true 2>&1 | sort",
        like(
            "flux-broker: boot: rank=0 size=2\nflux-broker: boot: rank=1 size=2\n"
            "flux-broker: child: ipc://(.*/tbon-0)\nflux-broker: child: (none|ipc://.*)\n"
            "flux-broker: parent: ipc://\\1\nflux-broker: parent: none\n"
        ),
    ),
    Line("flux start -o,-Slog-ring-size=100 flux getattr log-ring-size", "100\n"),
    Line("flux start --broker-opts=--conf=a.b=3,-q true", like("flux-broker: unrecognized option '-q'\n.*"), 1),
    Line("flux start -s4 -Scron.directory=/x -Stbon.fanout=2 flux getattr tbon.topo", "kary:2\n"),
    Line(
        "flux submit --wait-event=exec.shell.init sleep inf >id; flux run --wait-event=exec.shell.start sleep inf; "
        "flux job wait-event $(cat id) start >/dev/null; flux cancel $(cat id) $(flux job last)",
        "",
    ),
    Line(
        "flux submit --wait-event=memo flux start -Sbroker.rc2_none >id; flux proxy $(cat id) flux getattr size; "
        "flux shutdown --quiet $(cat id)",
        "1\n",
    ),
    Line("flux start --broker-opts=--conf=resource.noverify=true flux config get resource.noverify", "true\n"),
    Line("flux alloc -n1 --dry-run | grep -o '\"command\": [^]]*]'", '"command": ["flux", "broker"]\n'),
    Line("flux alloc -n1 --broker-opts=-Slog-ring-size=100 flux getattr log-ring-size", "100\n"),
    Line("mkdir rd; flux start -s1 --test-rundir=rd ls rd; ls -d rd", "bin\nlocal-0\nstart\nrd\n"),
    Line(
        "flux start -s1 --test-rundir=rd --test-rundir-cleanup ls rd; ls -d rd 2>/dev/null", "bin\nlocal-0\nstart\n", 2
    ),
    Line("flux start -s1 --test-rundir=rd true", "flux-start: rd: No such file or directory\n", 1),
    Line("touch rf; flux start -s1 --test-rundir=rf true", "flux-start: rf: not a directory\n", 1),
    Line("flux start --test-rundir=rd true", "flux-start: --test-rundir needs --test-size\n", 1),
    Line("flux start --test-exit-mode=any true", "flux-start: --test-exit-mode needs --test-size\n", 1),
    Line("flux start -s1 --test-exit-mode=x true", like("flux-start: unknown --test-exit-mode: x: .*\n"), 1),
    Line("flux start -s1 --test-start-mode=x true", like("flux-start: unknown --test-start-mode: x: .*\n"), 1),
    Line("flux start -s1 --test-exit-timeout=x true", like("flux-start: --test-exit-timeout: invalid.*\n"), 1),
    Line("flux start -s1 --test-rundir-cleanup true", "flux-start: --test-rundir-cleanup needs --test-rundir\n", 1),
    # which brokers share a node
    Line("flux start -s2 flux getattr broker.mapping", "[[0,1,2,1]]\n"),
    Line("flux start -s2 --test-pmi-clique=per-broker flux getattr broker.mapping", "[[0,2,1,1]]\n"),
    Line("flux start -s2 --test-pmi-clique=[[0,2,1,1]] flux getattr broker.mapping", "[[0,2,1,1]]\n"),
    Line("flux start -s2 --test-pmi-clique=none flux getattr tbon.endpoint", like("tcp://.*\n")),
    Line("flux start -s2 --test-pmi-clique=single flux getattr tbon.endpoint", like("ipc://.*\n")),
    Line("flux start -s2 --test-pmi-clique=0-2 true", like("flux-start: --test-pmi-clique: it places 3 .*\n"), 1),
    # how a broker boots
    Line("flux start -s1 flux getattr broker.boot-method", "simple\n"),
    Line("flux start flux getattr broker.boot-method", "single\n"),
    Line("flux start -s1 -Sbroker.boot-method=single flux getattr broker.boot-method", "single\n"),
    Line("FLUX_PMI_CLIENT_METHODS=single flux start -s1 flux getattr broker.boot-method", "single\n"),
    Line("flux start -s2 -Sbroker.boot-method=single true", like("flux-broker: boot method single makes .*\n"), 1),
    Line("flux start -Sbroker.boot-method=x true", "flux-broker: bootstrap: plugin matching 'x' not found\n", 1),
    Line("flux start -s2 -Sbroker.boot-method=x true", "flux-broker: bootstrap: plugin matching 'x' not found\n", 1),
    # the state of an instance, looked at: its jobs are there and nothing runs
    Line(
        "flux start -Sstatedir=st sh -c 'flux kvs put a=1; flux submit --wait true; flux submit --urgency=hold x'",
        like(f"{ID}\n{ID}\n"),
    ),
    Line(
        "flux start --recovery=st sh -c 'flux kvs get a; flux jobs -ano {name}; flux resource list -no {state}{nnodes};"
        " flux submit --quiet true; flux jobs -no {state}'",
        "1\nx\ntrue\nfree0\nallocated0\ndown1\nSCHED\nSCHED\n",
    ),
    Line("flux start --recovery=st flux getattr broker.recovery-mode", "1\n"),
    Line("flux start --recovery=nosuch true", like("flux-start: --recovery: nosuch: .*\n"), 1),
    Line("flux start -s2 --recovery=st true", like("flux-start: --recovery starts one broker.*\n"), 1),
]

LINES = [*DESCRIBING, *BULK, *STARTING]


@pytest.fixture(scope="module")
def run_answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return answers(LINES, tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize("index", range(len(LINES)), ids=names(LINES))
def test_submission_option_has_its_effect(index: int, run_answers: list[dict[str, Any]]) -> None:
    check(LINES[index], run_answers[index])
