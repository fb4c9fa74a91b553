"""Options of `flux queue`, `flux resource`, `flux config`, `flux R`, `flux version`: each shown by its effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from instance import start
from option_lines import Line, after_first, answers, check, like, names

from headrace import FLUX_VERSION, __version__

EPOCH = r"1\d{9}\.\d{6}"
CONFIG = Path(__file__).parent.parent / "data" / "commands"

QUEUE = [
    Line(
        "flux submit -q batch true >id; flux jobs -no '{contextual_info}'; flux queue stop batch --quiet -m paint; "
        "flux jobs -no '{contextual_info}'; flux cancel $(cat id)",
        "queue stopped\nqueue stopped: paint\n",
    ),
    Line("flux queue start --all", "batch: Scheduling is started\ndebug: Scheduling is started\n"),
    Line("flux queue stop -q debug", "debug: Scheduling is stopped\n"),
    Line("flux queue start --queue=debug", "debug: Scheduling is started\n"),
    Line("flux queue disable --queue=debug -m x", "debug: Job submission is disabled: x\n"),
    # Both directions of a switch have one name, and so has the message.
    Line("flux queue disable nosuch", "flux-queue: ERROR: enable: 'nosuch' is not a valid queue\n", 1),
    Line("flux queue stop nosuch", "flux-queue: ERROR: start: 'nosuch' is not a valid queue\n", 1),
    Line("flux queue enable -q debug", "debug: Job submission is enabled\n"),
    Line("flux queue stop debug --message='one and two'", "debug: Scheduling is stopped: one and two\n"),
    Line(
        "flux queue stop --quiet debug; flux queue status debug",
        "debug: Job submission is enabled\ndebug: Scheduling is stopped\n",
    ),
    Line(
        "flux queue start --quiet --all; flux queue status debug",
        "debug: Job submission is enabled\ndebug: Scheduling is started\n",
    ),
    Line(
        "flux queue start --verbose batch | tail -n3",
        "0 alloc requests queued\n0 alloc requests pending to scheduler\n0 running jobs\n",
    ),
    Line(
        "flux queue stop",
        "flux-queue: ERROR: Named queues detected; use the QUEUE argument or --all to specify queues\n",
        1,
    ),
    Line(
        "flux queue disable --all --message=closed",
        "batch: Job submission is disabled: closed\ndebug: Job submission is disabled: closed\n",
    ),
    Line("flux submit true", "[Errno 22] job submission to batch is disabled: closed\n", 1),
    Line(
        "flux queue disable --quiet batch; flux queue status batch | head -n1",
        "batch: Job submission is disabled: disabled by administrator\n",
    ),
    Line("flux queue disable --nocheckpoint --verbose batch | tail -n1", "0 running jobs\n"),
    Line("flux queue enable --all --quiet; flux queue enable --verbose batch | wc -l", "4\n"),
    Line("flux queue stop --verbose batch | tail -n1; flux queue start --quiet batch", "0 running jobs\n"),
    Line("flux queue status --all | cut -d: -f1 | sort -u", "batch\ndebug\n"),
    Line("flux queue status -a debug", "flux-queue: ERROR: Only one of QUEUE and --all may be specified\n", 1),
    Line("flux queue status --verbose | tail -n1", "0 running jobs\n"),
    Line(
        "flux queue list --no-header --format='{queue} {submission} {scheduling}'",
        "batch enabled started\ndebug enabled started\n",
    ),
    Line("flux queue list --queue=debug --format='{queue}'", "QUEUE\ndebug\n"),
    Line("flux queue list -q debug -o '{limits.range.ncores} {limits.max.ngpus}'", "NCORES MAXGPUS\n0-inf inf\n"),
    Line("FLUX_QUEUE_LIST_FORMAT_DEFAULT='{queue}{enabled.ascii}' flux queue list -q debug", "QUEUEEN\ndebugy\n"),
    Line("flux queue list --queue=nosuch", "flux-queue: ERROR: No such queue: nosuch\n", 1),
    Line("flux queue list --no-header --color=never -q debug", like("debug +✔ +✔ +5m +1h .*\n")),
    Line("flux queue list --no-header --color=always -q debug", like("debug +\033\\[01;32m ✔\033\\[0;0m.*\n")),
    Line(
        "flux submit -q debug sleep 100 >id; flux job wait-event -q $(cat id) start; flux queue drain --timeout=.1s",
        "flux-queue: ERROR: drain: timeout\n",
        1,
    ),
    Line("flux queue idle --timeout=.1s", "flux-queue: ERROR: idle: timeout\n", 1),
    Line("flux queue drain --timeout=x", like("flux-queue: ERROR: .*x.*\n"), 1),
    Line(
        "flux cancel $(cat id); flux queue drain -t 10s; flux submit -q debug --urgency=hold true >id; "
        "flux queue idle -t 10s",
        "1 jobs\n",
    ),
    Line("flux queue idle --quiet; flux cancel $(cat id)", ""),
]

RESOURCE = [
    # list, info, R
    Line("flux resource list --no-header --states=up --format='{state} {nodelist}'", "up node[0-3]\n"),
    Line("flux resource list --states=odd", like("flux-resource: ERROR: Invalid resource state odd specified: .*"), 1),
    Line(
        'printf \'{"all":%s,"down":%s,"allocated":null}\' "$(flux R encode -r0-3 -H a[0-3])" '
        '"$(flux R encode -r3 -H a3)" '
        ">in; export FLUX_URI=; flux resource list --from-stdin <in; flux resource info --from-stdin <in; "
        "flux resource R -s down --from-stdin <in | sed s/'.*starttime.*'/R/",
        "     STATE NNODES NCORES NGPUS NODELIST\n"
        "      free      3      3     0 a[0-2]\n"
        " allocated      0      0     0 \n"
        "      down      1      1     0 a3\n"
        "4 Nodes, 4 Cores, 0 GPUs\n"
        "R\n",
    ),
    Line(
        'printf \'{"R":%s,"online":"0-2","drain":{"1":{"timestamp":1.0,"reason":"x"}}}\' '
        '"$(flux R encode -r0-3 -H a[0-3])" | '
        "FLUX_URI= flux resource status -no '{state} {up.ascii} {nodelist}' --from-stdin",
        "avail y a[0,2]\navail n a3\ndrained y a1\n",
    ),
    Line("flux resource status --from-stdin -no {state} </dev/null", ""),
    Line("flux resource list -n --include=node[1-2] -o '{nodelist} {ranks}'", "node[1-2] 1-2\n"),
    Line("flux resource list -n --include=3 -o {nodelist}", "node3\n"),
    Line(
        "(flux R encode -r0-1 -c0 -p a:0; flux R encode -r2 -c0 -p b:2) | flux R append | "
        "jq '{version: 1, execution: {R_lite: []}} as $no | {all: ., down: $no, allocated: $no}' | "
        "flux resource list -s all --from-stdin -no '{properties}:{ranks}'",
        "a:0\n:1\nb:2\n",
    ),
    Line("flux resource list -n --queue=debug -s up -o '{queue} {nodelist}'", "debug node3\n"),
    Line("flux resource list -n -s allocated,down --skip-empty -o {state}", ""),
    Line("flux resource list -n -s allocated,down -o {state}", "allocated\ndown\n"),
    Line("flux resource list -n -s down --include=0 -o {state}", ""),
    Line("flux resource list -n -s down --include=0 --no-skip-empty -o {state}", "down\n"),
    Line(
        "flux queue start --quiet --all; flux resource status -ns allocated --skip-empty;"
        " flux run -q batch flux resource status -s allocated -no '{state} {nnodes}'",
        "allocated 1\n",
    ),
    Line("flux resource info --include=0-1", "2 Nodes, 4 Cores, 0 GPUs\n"),
    Line("flux resource info --queue=debug", "1 Nodes, 2 Cores, 0 GPUs\n"),
    Line("flux resource info --states=down", "0 Nodes, 0 Cores, 0 GPUs\n"),
    Line("flux resource R --include=0-1 | flux R decode --short", "rank[0-1]/core[0-1]\n"),
    Line("flux resource R --queue=debug | flux R decode --short", "rank3/core[0-1]\n"),
    Line("flux resource R --states=allocated | flux R decode --count=core", "0\n"),
    # drain and undrain
    Line("flux resource drain 1-2 first; flux resource drain --no-header -o '{ranks} {reason}'", "1-2 first\n"),
    Line("flux resource drain 1 second", like("flux-resource: ERROR: .*already drained.*\n"), 1),
    Line(
        "flux resource drain --update 0-1 second; flux resource drain -no '{ranks} {reason}' | sort",
        "0 second\n1-2 first\n",
    ),
    Line(
        "flux resource drain -no '{ranks} {timestamp}' --include=1 >before; flux resource drain --force 1 third; "
        "flux resource drain -no '{ranks} {timestamp}' --include=node1 | diff - before; "
        "flux resource drain -no {reason} -i 1",
        "third\n",
    ),
    Line(
        "flux resource drain -ff 1 fourth; flux resource drain -no '{ranks} {timestamp}' -i 1 | cmp -s - before; "
        "echo $?",
        "1\n",
    ),
    Line(
        "flux resource drain --queue=debug --no-header; flux resource drain -q batch -no '{ranks} {reason}' | wc -l",
        "3\n",
    ),
    Line("flux resource drain --force --update 1 x", like("flux-resource: ERROR: Only one of --force.*\n"), 1),
    Line("flux resource undrain 1,3", like("flux-resource: ERROR: rank 3 not drained\n"), 1),
    Line("FLUX_RESOURCE_DRAIN_FORMAT_DEFAULT='{ranks} {ranks}' flux resource drain | head -n1", "RANKS RANKS\n"),
    Line("flux resource drain 1 again", like("flux-resource: ERROR: .*rank 1 already drained: use --force .*\n"), 1),
    Line("flux resource undrain --force 1,3 fan replaced; flux resource drain -no {ranks}", "0,2\n"),
    Line("flux resource eventlog | tail -n1", like('.* undrain idset="1" .*reason="fan replaced" overwrite=1\n')),
    Line("flux resource undrain", like(".* the following arguments are required: TARGETS\n"), 2),
    # status
    Line("flux resource status --no-header --format='{state} {nodelist}'", "avail node[1,3]\ndrained node[0,2]\n"),
    Line("flux resource status -n --states=drained -o {ranks}", "0,2\n"),
    Line("flux resource status -n --states=draining,torpid -o {state}", "draining\ntorpid\n"),
    Line("flux resource status -n --states=draining,torpid --skip-empty -o {state}", ""),
    Line("flux resource status -n --include=2-3 -o '{state} {ranks}'", "avail 3\ndrained 2\n"),
    Line("flux resource status -n --queue=debug -o '{state} {ranks}'", "avail 3\n"),
    Line("flux resource status -n --color=always -s avail", like(".*\033\\[01;32m.*")),
    Line("flux resource status -n --color=never -s avail -o '{state} {up.ascii}'", "avail y\n"),
    Line("flux resource undrain 0,2"),
    # eventlog
    Line("flux resource eventlog | head -n1", like(f"{EPOCH} restart .*\n")),
    Line("flux resource eventlog --format=json | head -n1", like('{"timestamp":.*"name":"restart".*}\n')),
    Line("flux resource eventlog --time-format=offset | head -n1", like("0.000000 restart .*\n")),
    Line("flux resource eventlog --time-format=odd", like("usage: .*invalid choice: 'odd'.*"), 2),
    Line("flux resource eventlog --human | head -n1", like(r"\[...\d\d \d\d:\d\d\] restart .*\n")),
    Line(
        "flux resource eventlog --color=always | grep undrain | head -n1",
        like("\033\\[32m.*\033\\[33mundrain\033\\[0m.*\n"),
    ),
    Line("flux resource eventlog --wait=resource-define -f json", like('{"timestamp":.*"name":"resource-define".*}\n')),
    Line(
        after_first(
            "timeout 10 flux resource eventlog --follow",
            "flux resource drain 3 seen; until grep -q seen seen; do sleep .02; done; kill %1",
        )
        + " | grep -c reason..seen",
        "1\n",
    ),
    Line("flux resource undrain 3"),
    # Whoever mutes the resource module keeps the scheduler from learning that a node was drained.
    Line(
        "flux queue start -a --quiet; flux resource acquire-mute; flux resource drain 0; "
        "flux run --requires=rank:0 true"
    ),
    # reload, only without a scheduler
    Line(
        "flux R encode -r 0-1 -c 0-3 -H node[0-1] >two.json; flux resource reload two.json",
        "flux-resource: ERROR: resources are busy (unload scheduler?)\n",
        1,
    ),
    Line(
        "flux module remove sched-graph; flux resource reload two.json; flux resource info",
        "2 Nodes, 8 Cores, 0 GPUs\n",
    ),
    Line(
        "flux R encode -r 0-9 -c 0 -H node[0-9] >many.json; flux resource reload many.json",
        like("flux-resource: ERROR: .*many.json: ranks 4-9 are not in this instance of 4\n"),
        1,
    ),
    Line("flux resource reload --force many.json; flux resource info", "10 Nodes, 10 Cores, 0 GPUs\n"),
    Line(
        'mkdir xml; for r in 0 1; do echo \'<topology><object type="Machine"><info name="HostName" value="node\'$r\'"/>'
        '<object type="Core"><object type="PU"/><object type="PU"/></object><object type="OSDev" name="cuda0"/>'
        "</object></topology>' >xml/$r.xml; done; flux resource reload --xml xml; "
        "flux resource R | flux R decode -s; flux resource R | flux R decode -n",
        "rank[0-1]/core0,gpu0\nnode[0-1]\n",
    ),
    Line(
        "mkdir x; echo '<t/>' >x/0.xml; flux resource reload --xml x",
        like("flux-resource: .*x/0.xml: no cores in it.*\n"),
        1,
    ),
    Line(
        "mv x/0.xml x/a.xml; flux resource reload -x x",
        like("flux-resource: .*x/a.xml: the file's name must be .*\n"),
        1,
    ),
    Line("flux resource reload --xml nosuch", like("flux-resource: ERROR: .*/nosuch: No such file or directory\n"), 1),
    Line("flux module load sched-graph; flux resource info", "2 Nodes, 2 Cores, 2 GPUs\n"),
]

R = [
    Line(
        "flux R encode --ranks=0-1 --cores=0-1 --gpus=0 --hosts=a,b",
        '{"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {"gpu": "0", "core": "0-1"}}], '
        '"starttime": 0.0, "expiration": 0.0, "nodelist": ["a,b"]}}\n',
    ),
    Line("flux R encode --hosts=a[0-2] | flux R decode --short", "rank[0-2]/core0\n"),
    Line("flux R encode | flux R decode --short", "rank0/core0\n"),
    Line("flux R encode -r 0-1 -g 0-1 | flux R decode --short", "rank[0-1]/gpu[0-1]\n"),
    Line("flux R encode -r 0-2 -H a,b", "flux-R: hostname count in 'a,b' does not match nranks (3)\n", 1),
    # As many as a broker of this machine finds.
    Line(
        "flux start flux resource list -s all -no '{ncores}' >found; "
        "flux R encode --local | flux R decode --count=core | diff - found",
        "",
    ),
    Line("flux R encode --local --cores=0", "flux-R: do not specify --cores or --gpus with --local or --xml\n", 1),
    Line(
        "flux R encode -r 0-3 --property=fast:0-1 --property=all >p; flux R decode --properties=fast --ranks <p; "
        "flux R decode -p all -r <p",
        "0-1\n0-3\n",
    ),
    Line("flux R decode --properties=^fast --ranks <p", "2-3\n"),
    Line("flux R decode --include=1-2 --ranks <p", "1-2\n"),
    Line("flux R decode --exclude=1-2 --ranks <p", "0,3\n"),
    Line("flux R encode -r 0-3 -c 0-1 -g 0 -H n[0-3] >q; flux R decode --nodelist <q", "n[0-3]\n"),
    Line("for t in node core gpu; do flux R decode --count=$t <q; done", "4\n8\n4\n"),
    Line("flux R decode --short <q", "rank[0-3]/core[0-1],gpu0\n"),
    Line(
        "flux R set-property slow:2-3 mine:n0 odd <q >r; flux R decode -p slow -r <r; flux R decode -p mine -r <r; "
        "flux R decode -p odd -r <r",
        "2-3\n0\n0-3\n",
    ),
    Line(
        "(flux R encode -r 0-1 -c 0-3; flux R encode -r 1-2 -c 2-5) >two; flux R intersect <two | flux R decode -s",
        "rank1/core[2-3]\n",
    ),
    Line("flux R diff <two | flux R decode -s", "rank0/core[0-3] rank1/core[0-1]\n"),
    Line("flux R append <two", "flux-R: cannot append: both sets have rank1/core[2-3]\n", 1),
    Line(
        "(flux R encode -r 0 -c 0; flux R encode -r 5 -c 1) | flux R append | flux R decode -s",
        "rank0/core0 rank5/core1\n",
    ),
    Line("flux R encode -r 3,5 -c 2-3 -H a,b | flux R remap | flux R decode -s", "rank[0-1]/core[0-1]\n"),
    Line("flux R encode -r 0-1 -c 0 -H a,b | flux R rerank b,a | flux R decode -i 0 -n", "b\n"),
    Line("flux R encode -r 0-1 -c 0 -H a,b | flux R rerank b,x", like("flux-R: .*a.*\n"), 1),
    Line("(flux R encode -r 0 -c 0-1; flux R encode -r 0 -c 0) | flux R verify", like("flux-R: .*core1.*\n"), 1),
    Line(
        "(flux R encode -r 0 -c 0-1; flux R encode -r 0 -c 0-2) | flux R verify",
        "flux-R: extra resources: rank0/core2\n",
    ),
    Line("(flux R encode -r 0-4 -c 0-1; flux R encode -r 3 -c 0-1) | flux R verify", ""),
    Line(
        "(flux R encode -r 0-1 -H a,b; flux R encode -r 1-2 -H c,d) | flux R verify",
        "flux-R: rank 1 got hostname 'c', expected 'b', rank 2 is not expected\n",
        1,
    ),
    Line(
        """echo '<t><object type="Core"/><object type="OSDev" name="cuda0"/></t>' >n.xml; """
        "flux R encode --xml=n.xml -H a | flux R decode -s",
        "rank0/core0,gpu0\n",
    ),
    Line("""echo '{"version":1,"execution":{"R_lite":{}}}' | flux R decode --count=node""", "0\n"),
    Line(
        "flux R encode -r 7 >seven.json; echo 'resource.path = \"seven.json\"' >p.toml; "
        "flux R parse-config p.toml | flux R decode --short",
        "rank7/core0\n",
    ),
    Line(
        'printf \'[[resource.config]]\\nhosts="c[0-1]"\\ncores="0-1"\\n\' >c.toml; '
        "flux R parse-config c.toml | flux R decode -s",
        "rank[0-1]/core[0-1]\n",
    ),
    Line(
        "echo '{\"a\": 1}' >s.json; printf 'resource.scheduling=\"s.json\"\\n' >s.toml; "
        'printf \'[[resource.config]]\\nhosts="c"\\ncores="0"\\n\' >>s.toml; '
        "flux R parse-config s.toml | grep -o '\"scheduling\".*'",
        '"scheduling": {"a": 1}}\n',
    ),
    # config
    Line(
        "flux config get --type=fsd-integer policy.limits.duration; "
        "flux config get --type=fsd-real policy.limits.duration",
        "7200\n7200.0\n",
    ),
    Line(
        "flux config get --type=integer policy.limits.duration",
        "flux-config: policy.limits.duration does not have the requested type\n",
        1,
    ),
    Line("flux config get --type=array queues.debug.requires", '["debug"]\n'),
    Line("flux config get --default=none a.b; flux config get --quiet a.b", "none\n", 1),
    Line("flux config get -c c.toml nosuch", "flux-config: nosuch is not set\n", 1),
    Line("flux config get --config-path=c.toml resource.config", like('\\[{.*"c\\[0-1\\]".*}\\]\n')),
    Line("printf '[x]\\ny=1\\n' | flux config load; flux config get x.y", "1\n"),
    Line(
        'echo \'{"x":{"y":2}}\' | flux config load; flux config get x.y; flux config get queues',
        "2\nflux-config: queues is not set\n",
        1,
    ),
    Line("flux config load c.toml; flux config get x.y", "flux-config: x.y is not set\n", 1),
    Line(
        "flux config reload; flux config get x.y; flux config get queues.debug.requires",
        '["debug"]\nflux-config: x.y is not set\n',
    ),
    Line("flux config set --type=integer a.b 7; flux config set a.b 8; flux config get --type=integer a.b", "8\n"),
    Line("flux config set a.c 8", like("flux-config: a.c is not set: .*"), 1),
    Line("flux config set a.b x", "flux-config: a.b: x does not have the requested type integer\n", 1),
    Line(
        "flux config set --type=real a.c 3; flux config set --type=fsd a.d 45m; flux config get a", like('{.*"45m"}\n')
    ),
    Line("flux config unset a.b; flux config unset no.such; flux config get a.b", "flux-config: a.b is not set\n", 1),
    Line("flux config set --type=string heartbeat.period 42XYZ", like("flux-config: .*"), 1),
    Line("flux config get heartbeat.period", "flux-config: heartbeat.period is not set\n", 1),
    Line("flux config builtin --installed confdir; flux config builtin --intree confdir", "/etc/flux\n/etc/flux\n"),
    Line(
        "flux config set -t integer a.z 1; flux python -c 'import flux; flux.Flux().rpc(\"config.load\").get()' 2>&1 "
        "| grep -o 'Errno 71'; flux config get a.z; flux config load </dev/null; flux config get; flux config reload",
        "Errno 71\n1\n{}\n",
    ),
    Line("test -d $(flux config builtin module_path)"),
    Line(
        "flux config builtin 2>&1 | head -1; flux config builtin 2>/dev/null",
        like("Usage: flux-config builtin .*\n"),
        1,
    ),
    # the leader's configuration is everybody's
    Line(
        "flux config set -t integer a.y 5; flux exec -r 1 flux config get a.y; "
        "flux exec -r 1 flux config load </dev/null; "
        "flux exec -r 1 flux config reload --follower-noop && flux exec -r 1 flux config get a.y; flux config reload; "
        "flux exec -r 1 flux config get a.y",
        "5\n5\nflux-config: change the configuration on the leader, rank 0, which informs the others\n1: Exit 1\n"
        "flux-config: a.y is not set\n1: Exit 1\n",
        1,
    ),
    Line("flux config builtin odd", like("flux-config: odd is invalid.*\n"), 1),
    Line("flux version | cut -d: -f1", "commands\nlibflux-core\nbroker\nFLUX_URI\nbuild-options\n"),
    # programs choose their syntax by the first number: it is Flux's, ours stands in the options
    Line(
        """flux version | awk '$1 != "FLUX_URI:" {print $1, $2}' | sed 's/+python.*//'""",
        f"commands: {FLUX_VERSION}\nlibflux-core: {FLUX_VERSION}\nbroker: {FLUX_VERSION}\n"
        f"build-options: +headrace=={__version__}\n",
    ),
    Line(
        "env -u FLUX_URI flux version | cut -d: -f1; flux --version | head -n1 | cut -d: -f1",
        "commands\nlibflux-core\nbuild-options\ncommands\n",
    ),
]

LINES = QUEUE + R + RESOURCE


@pytest.fixture(scope="module")
def queue_resource_answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return answers(LINES, tmp_path_factory.mktemp("queues"), "-s4", "-c", str(CONFIG))


@pytest.mark.parametrize("index", range(len(LINES)), ids=names(LINES))
def test_queue_and_resource_option_has_its_effect(index: int, queue_resource_answers: list[dict[str, Any]]) -> None:
    check(LINES[index], queue_resource_answers[index])


def test_queue_change_without_checkpoint_does_not_outlive_the_instance(tmp_path: Path) -> None:
    statedir = f"-Sstatedir={tmp_path}"
    passing = "flux queue disable --nocheckpoint -m passing; flux queue stop --nocheckpoint -m passing"
    first = start(statedir, "sh", "-c", f"flux queue disable -m lasting; flux queue stop -m lasting; {passing}")
    assert first.rc == 0, first.err
    lasting = "Job submission is disabled: lasting\nScheduling is stopped: lasting\n"
    assert start(statedir, "flux", "queue", "status").out == lasting
