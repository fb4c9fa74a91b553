"""Options of `flux module`, `flux content` and `flux overlay`: each shown by its effect."""

from __future__ import annotations

from typing import Any

import pytest
from option_lines import Line, answers, check, like, names

BLOB = "sha1-[0-9a-f]{40}"
COMMITS = "--parse=transaction-opcount.commit.count kvs"
MOST = "--parse=transaction-opcount.commit.max"

MODULE = [
    Line("flux module list | grep '^kvs '", like("kvs +(\\d+|idle) +R +0 +0 +\n")),
    Line("flux module list --long | grep -c '/kvs/service[.]py'", "1\n"),
    # stats
    Line(f"flux kvs put a=1; flux module stats {COMMITS} >n; test $(cat n) -gt 0; echo $?", "0\n"),
    Line(f"flux module stats {MOST} --scale=2.5 kvs", like("\\d+\\.(0|5)\n")),
    Line(f"flux module stats {MOST} --scale=2.5 --type=int kvs", like("\\d+\n")),
    Line(f"flux module stats {MOST} --type=double kvs", like("\\d+\\.0\n")),
    Line(
        f"flux module stats --type=odd {MOST} kvs",
        like("flux-module: --type: unknown.*\n"),
        1,
    ),
    Line(
        f"flux module stats --scale=odd {MOST} kvs",
        like("flux-module: --scale: not a.*\n"),
        1,
    ),
    Line("flux module stats --parse=no.such kvs", "flux-module: `no.such' not found in response\n", 1),
    Line(f"flux module stats --clear kvs; flux module stats {COMMITS}", "0\n"),
    Line(
        f"flux kvs put a=1; flux module stats {COMMITS}; flux module stats --clear-all kvs; "
        f"until test $(flux module stats {COMMITS}) = 0; do :; done",
        "1\n",
    ),
    Line("flux module stats --rusage kvs | grep -c utime; flux module stats kvs | grep -c utime", "1\n0\n", 1),
    Line(
        "flux module stats --rusage=children --parse=maxrss kvs >c; "
        "flux module stats --rusage=self -p maxrss kvs | cmp -s c; echo $?",
        "1\n",
    ),
    Line("flux module stats --rusage=thread --parse=nvcsw kvs", like("\\d+\n")),
    Line(
        "flux module stats --rusage=odd kvs", like("flux-module: kvs: rusage of 'odd': use self, children, thread\n"), 1
    ),
    # debug flags
    Line("flux module debug --set=0x11 kvs; flux module debug kvs", "0x11\n0x11\n"),
    Line("flux module debug --setbit=2 kvs; flux module debug --clearbit=0x10 kvs", "0x13\n0x3\n"),
    Line("flux module debug --clear kvs", "0x0\n"),
    Line("flux module debug --set=x kvs", like("flux-module: .*integer.*\n.*"), 1),
    # load, remove, reload
    Line("flux module remove heartbeat; flux module load -n beat heartbeat; flux module list | grep -c ^beat", "1\n"),
    Line(
        "flux module reload --name=beat heartbeat; flux module unload beat; flux module list | grep -c ^beat", "0\n", 1
    ),
    Line("flux module reload heartbeat", "flux-module: remove heartbeat: No such file or directory\n", 1),
    Line("flux module reload --force heartbeat; flux module list | grep -c ^heartbeat", "1\n"),
    Line(
        "flux module remove --force nosuch; flux module remove nosuch",
        "flux-module: remove nosuch: No such file or directory\n",
        1,
    ),
    Line("flux module reload --exec heartbeat; flux module list | grep -c ^heartbeat", "1\n"),
    Line("test $(flux module stats -R -p utime heartbeat) != $(flux module stats -R -p utime kvs); echo $?", "0\n"),
    # trace
    Line(
        "timeout 9 flux module trace --full --topic='kvs.getr*' --type=request kvs >t & "
        "until test -s t; do flux kvs version >v; done; kill $!; head -n2 t",
        like(r'[0-9.]+ kvs rx > kvs.getroot \[\d+\]\n\{"namespace": "primary".*\}\n'),
    ),
    Line(
        "timeout 9 flux module trace --human --topic=kvs.getroot -t response kvs >h & "
        "until test -s h; do flux kvs version >v; done; kill $!; head -n1 h",
        like(r"\[...\d\d \d\d:\d\d\] kvs tx < kvs.getroot \[\d+\]\n"),
    ),
    Line(
        "timeout 9 flux module trace -H --delta --color=always >d & "
        "until grep -q 'rx.*kvs.getroot' d; do flux kvs version >v; done; kill $!; grep -m1 'rx.*kvs.getroot' d",
        like("\033\\[32m\\[.*\\]\033\\[0m kvs \033\\[36mrx >\033\\[0m kvs.getroot .*\n"),
    ),
    Line("flux module trace -d kvs", "flux-module: --delta can only be used with --human\n", 1),
    Line("flux module trace --type=odd kvs", like("flux-module: --type: unknown message type odd.*\n"), 1),
]

CONTENT = [
    Line("echo blob | flux content store --bypass-cache >b; flux content load $(cat b)", "blob\n"),
    Line("flux content load --bypass-cache $(cat b)", "blob\n"),
    Line("flux content load <b", "blob\n"),
    # The KVS makes the blobs of its tree when they are asked for; the store behind the cache does not have them.
    Line("flux kvs put r=1; flux content load $(flux kvs getroot -b) | grep -c dir", "1\n"),
    Line(
        "flux content load --bypass-cache $(flux kvs getroot -b)",
        "flux-content: error loading blob: No such file or directory\n",
        1,
    ),
    Line("flux content dropcache; flux content load $(cat b)", "blob\n"),
    Line(
        "echo more | flux content store >b; flux content flush; flux module stats -p dirty content; "
        "flux content load $(cat b)",
        "0\nmore\n",
    ),
]

OVERLAY = [
    # A chain of four brokers.
    Line("flux overlay status", "0 node0: full\n└─ 1 node1: full\n   └─ 2 node2: full\n      └─ 3 node3: full\n"),
    Line("flux overlay status --no-pretty", "0 node0: full\n1 node1: full\n2 node2: full\n3 node3: full\n"),
    Line("flux overlay status --rank=2", "2 node2: full\n└─ 3 node3: full\n"),
    Line("flux overlay status --rank=9", like("flux-overlay: .*\n"), 1),
    Line("flux overlay status --summary", "full\n"),
    Line("flux overlay status --summary --verbose=2", like(r"full for [\d.]+[smh] \([\d.]+ ms\)\n")),
    Line("flux overlay status -v --rank=3", like(r"3 node3: full for [\d.]+[smh]\n")),
    Line("flux overlay status -vv --rank=3", like(r"3 node3: full for [\d.]+[smh] \([\d.]+ ms\)\n")),
    Line("flux overlay status --verbose=odd", like("flux-overlay: --verbose: invalid level 'odd'.*\n"), 1),
    Line("flux overlay status --down", ""),
    Line(
        "flux overlay status --no-pretty --highlight=1",
        "<<0 node0>>: full\n<<1 node1>>: full\n2 node2: full\n3 node3: full\n",
    ),
    Line(
        "flux overlay status --no-pretty -H node1 -Lalways | head -n2",
        "\033[01;34m0 node0\033[0m: full\n\033[01;34m1 node1\033[0m: full\n",
    ),
    Line("flux overlay status --highlight=nosuch", "flux-overlay: nosuch: no such host\n", 1),
    Line("flux overlay status --summary --wait=full", "full\n"),
    Line("flux overlay status --wait=lost --timeout=0.1s", "flux-overlay: Connection timed out\n", 1),
    Line("flux overlay status --wait=odd", like("flux-overlay: invalid --wait state 'odd'.*\n"), 1),
    Line("flux overlay status --timeout=odd", like("flux-overlay: invalid timeout: .*\n"), 1),
    Line("flux overlay status --summary --timeout=0", "full\n"),
    Line("flux overlay lookup 1-2; flux overlay lookup node[2-3]; flux overlay lookup node1", "node[1-2]\n2-3\n1\n"),
    Line("flux overlay lookup 9", like("flux-overlay: 9: rank is out of range.*\n"), 1),
    Line("flux overlay parentof 3; flux overlay parentof node1", "2\n0\n"),
    Line("flux overlay parentof 0", "flux-overlay: 0 has no parent\n", 1),
    Line(
        "flux overlay disconnect --parent=0 2",
        like(".*asking node0 \\(rank 0\\) to disconnect child node2 \\(rank 2\\)\nflux-overlay: rank 2 is not .*\n"),
        1,
    ),
    # A broker that does not answer: its process stands still.
    Line(
        "flux exec -r 3 flux getattr broker.pid >pid; kill -STOP $(cat pid); "
        "flux overlay status -vv --no-pretty --timeout=2s | tail -n1; kill -CONT $(cat pid)",
        like("3 node3: full for .* Connection timed out\n"),
    ),
    Line(
        "flux exec -r 3 flux getattr broker.pid >pid; kill -STOP $(cat pid); "
        "timeout -k 60 5 flux exec -r 3 true; status=$?; "
        "flux exec -v -r 2-3 sleep 100 2>told & until grep -qs started told; do sleep .02; done; "
        "kill $!; wait $!; kill -CONT $(cat pid); grep -v process told; exit $status",
        "flux-exec: rank 2: ended: Terminated\nflux-exec: rank 3 has not answered\n2: Terminated\n"
        "flux-exec: rank 3 has not answered\n",
        124,
    ),
    Line("flux overlay disconnect node2", "flux-overlay: asking node1 (rank 1) to disconnect child node2 (rank 2)\n"),
    Line("flux overlay status --summary --wait=degraded", "degraded\n"),
    Line(
        "flux overlay status --no-pretty --color=never",
        "0 node0: degraded\n1 node1: degraded\n2 node2: lost lost connection: administratively disconnected\n3 "
        "node3: lost\n",
    ),
    Line("flux overlay status --no-pretty --no-ghost | wc -l", "3\n"),
    Line(
        "flux overlay status --no-pretty --color=always | tail -n2",
        "2 node2: \033[31mlost\033[39m lost connection: administratively disconnected\n3 node3: \033[90mlost\033[39m\n",
    ),
    Line("flux overlay status --down --no-pretty | tail -n1", "3 node3: lost\n"),
    Line(
        "flux overlay errors --timeout=1s",
        "node2: lost connection: administratively disconnected\nnode3: lost parent\n",
    ),
    Line("flux overlay errors --timeout=odd", like("flux-overlay: invalid timeout: .*\n"), 1),
]
LINES = MODULE + CONTENT + OVERLAY


@pytest.fixture(scope="module")
def module_overlay_answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("overlay")
    state = f"-Sstatedir={tmp_path_factory.mktemp('state')}"
    size = ("-s4", "-Stbon.topo=kary:1", "--test-hosts=node[0-3]")
    # A line has a follower end.
    return answers(LINES, folder, *size, "--test-exit-mode=leader", state)


@pytest.mark.parametrize("index", range(len(LINES)), ids=names(LINES))
def test_module_and_overlay_option_has_its_effect(index: int, module_overlay_answers: list[dict[str, Any]]) -> None:
    check(LINES[index], module_overlay_answers[index])
