"""Options of `flux kvs`, `flux content`: each shown by an answer that would be another one without it."""

from __future__ import annotations

from typing import Any

import pytest
from option_lines import Line, after_first, answers, check, like, names

BLOB = "sha1-[0-9a-f]{40}"
DIRREF = '{"data":\\["' + BLOB + '"\\],"type":"dirref","ver":1}\n'

KVS = [
    # put and what it tells of the new root
    Line("flux kvs put a.b=1 a.c=foo a.d.e=2 x=top"),
    Line("flux kvs put --raw 'r=a b'; flux kvs get r; flux kvs get --raw r", "a b\na b"),
    Line("printf 'in\\n' | flux kvs put --raw r=-; flux kvs get --raw r", "in\n"),
    Line('flux kvs put --treeobj \'t={"ver":1,"type":"val","data":"NQ=="}\'; flux kvs get t', "5\n"),
    Line("flux kvs put --treeobj t=5", "flux-kvs: t: not a tree object: it must be a JSON object\n", 1),
    Line('flux kvs put --treeobj \'t={"ver":1,"type":"nosuch","data":"NQ=="}\'', like("flux-kvs: .+\n"), 1),
    Line("flux kvs put --raw --append r=more; flux kvs get r", "in\nmore\n"),
    Line("""flux kvs put --append p=a; flux kvs put --append p=b 'q="c"' z=; flux kvs get p q z""", 'ab\n"c"\n'),
    Line("flux kvs put --treeobj-root x=top", like(DIRREF)),
    Line("flux kvs put --blobref x=top >b; cat b; flux kvs getroot --blobref | diff - b", like(BLOB + "\n")),
    Line("flux kvs put --sequence x=top >s; flux kvs getroot --sequence | diff - s; flux kvs version | diff - s"),
    # A standalone commit is not merged with another, so the version grows by one for each of them.
    Line(
        "v=$(flux kvs version); for i in 1 2 3; do flux kvs put --no-merge n.$i=1 & done; wait; "
        "echo $(($(flux kvs version) - v))",
        "3\n",
    ),
    Line(
        "flux kvs put --blobref --sync x=top >s; flux python -c 'import flux; h = flux.Flux(); "
        """print(h.rpc("content.checkpoint-get", {"key": "kvs-primary"}).get()["value"]["rootref"])' | diff - s""",
        "",
    ),
    Line(
        "flux kvs namespace create nosync; flux kvs put --sync --namespace=nosync a=1",
        "flux-kvs: flux_kvs_commit: Invalid argument (only the primary namespace has checkpoints)\n",
        1,
    ),
    Line("flux kvs namespace remove nosync", ""),
    # get
    Line("flux kvs get --label a.b a.c", "a.b=1\na.c=foo\n"),
    Line("flux kvs get --treeobj a.b", '{"data":"MQ==","type":"val","ver":1}\n'),
    Line("flux kvs getroot >root; flux kvs put a.b=7; flux kvs get --at $(cat root) a.b; flux kvs get a.b", "1\n7\n"),
    Line("flux kvs put w=1; " + after_first("flux kvs get --watch --count=2 w", "flux kvs put w=2"), "1\n2\n"),
    Line(
        after_first("flux kvs get --watch --uniq --count=2 w", "flux kvs put w=2; flux kvs put w=3"),
        "2\n3\n",
    ),
    Line(after_first("flux kvs get --watch --count=2 w", "flux kvs put w=3; flux kvs put w=4"), "3\n3\n"),
    Line(
        "flux kvs put -r l=one; "
        + after_first("flux kvs get -r --watch --append --count=2 l", "flux kvs put -rA l=two"),
        "onetwo",
    ),
    Line(
        "flux kvs put -r l=one; " + after_first("flux kvs get -r --watch --count=2 l", "flux kvs put -rA l=two"),
        "oneonetwo",
    ),
    # Only a full watch notices that the folder of its key was replaced.
    Line(
        "flux kvs put f.k=1 g.k=2; " + after_first("flux kvs get --watch --full --count=2 f.k", "flux kvs move g f"),
        "1\n2\n",
    ),
    Line("flux kvs get --waitcreate late & sleep .1; flux kvs put late=5; wait", "5\n"),
    Line("flux kvs get later", "flux-kvs: later: No such file or directory\n", 1),
    Line("flux kvs get --stream --label l w", "l=onetwo\nw=4\n"),
    Line("flux kvs get --stream l nosuch", "onetwo\nflux-kvs: nosuch: No such file or directory\n", 1),
    Line("flux kvs get --at=here a", "flux-kvs: --at=here: give a tree object, as `flux kvs getroot` prints it\n", 1),
    Line("flux kvs get --stream -t l", "flux-kvs: --stream cannot be used with --treeobj or --at\n", 1),
    # an empty value is no portion at all
    Line("flux kvs put -r void=; flux kvs get --stream void; flux kvs get --stream l", "onetwo\n"),
    Line("flux kvs get --watch --stream l", "flux-kvs: l: Invalid argument\n", 1),
    Line("flux kvs namespace create ns1 ns2; flux kvs put --namespace=ns1 k=1; flux kvs get -N ns1 k", "1\n"),
    Line("FLUX_KVS_NAMESPACE=ns1 flux kvs get k; flux kvs get k", "1\nflux-kvs: k: No such file or directory\n", 1),
    # ls and dir
    Line("flux kvs ls -N ns1 -1", "k\n"),
    Line("flux kvs link a.b a.l; flux kvs ls --classify a", "b     c     d.    l@\n"),
    Line("flux kvs ls -1 a", "b\nc\nd\nl\n"),
    Line("flux kvs ls --width=10 a", "b    d\nc    l\n"),
    Line("flux kvs ls --width=0 a", "b    c    d    l\n"),
    Line("flux kvs ls --recursive a", "a:\nb    c    d    l\n\na.d:\ne\n"),
    Line("flux kvs ls --directory a", "a\n"),
    Line("flux kvs ls -1F --directory a a. a.l a.b", "a.\na.\na.l@\na.b\n"),
    Line("flux kvs ls a.b.", "a.b.: Not a directory\n", 1),
    Line("COLUMNS=10 flux kvs ls a", "b    d\nc    l\n"),
    Line("flux kvs dir a", "a.b = 7\na.c = foo\na.d.\na.l -> a.b\n"),
    Line("flux kvs dir --recursive a", "a.b = 7\na.c = foo\na.d.e = 2\na.l -> a.b\n"),
    Line("flux kvs dir --directory a", "a.b\na.c\na.d.\na.l -> a.b\n"),
    Line("flux kvs dir --at $(cat root) a", "a.b = 1\na.c = foo\na.d.\n"),
    Line("flux kvs put long.k=0123456789012345678901234567890; flux kvs dir --width=20 long", "long.k = 01234567...\n"),
    Line("flux kvs dir --width=0 long", "long.k = 0123456789012345678901234567890\n"),
    Line("flux kvs dir -N ns1", "k = 1\n"),
    # links
    Line("flux kvs link --target-namespace=ns1 k n; flux kvs get n; flux kvs readlink n", "1\nns1::k\n"),
    Line("flux kvs readlink --namespace-only n; flux kvs readlink --key-only n", "ns1\nk\n"),
    Line(
        "flux kvs link x lnk; flux kvs getroot >root2; flux kvs link r lnk; flux kvs readlink --at $(cat root2) lnk",
        "x\n",
    ),
    Line(
        "flux kvs link --sequence x lnk >s; flux kvs version | diff - s; flux kvs link --blobref x lnk",
        like(BLOB + "\n"),
    ),
    Line("flux kvs mkdir --treeobj-root m.n; flux kvs ls -F m", like(DIRREF + "n.\n")),
    Line("flux kvs mkdir --blobref m.o", like(BLOB + "\n")),
    Line("flux kvs mkdir --sequence m.o >s; flux kvs version | diff - s"),
    Line("flux kvs link --treeobj-root x lnk", like(DIRREF)),
    Line(
        "flux kvs link --namespace=ns1 k nl; flux kvs readlink -N ns1 nl; flux kvs unlink -N ns1 nl; "
        "flux kvs readlink nl",
        "k\nflux-kvs: readlink: nl: No such file or directory\n",
        1,
    ),
    Line("flux kvs mkdir -N ns1 dd; flux kvs ls -1F -N ns1", "dd.\nk\n"),
    # unlink
    Line("flux kvs unlink a", "flux-kvs: cannot unlink 'a': Directory not empty\n", 1),
    Line("flux kvs unlink --recursive --blobref a; flux kvs dir a", like(BLOB + "\nflux-kvs: a: No such file.*\n"), 1),
    Line(
        "flux kvs unlink --force nosuch; flux kvs unlink nosuch",
        "flux-kvs: cannot unlink 'nosuch': No such file or directory\n",
        1,
    ),
    Line("flux kvs put u=1; flux kvs unlink --treeobj-root u", like(DIRREF)),
    Line("flux kvs unlink --sequence x >s; flux kvs version | diff - s"),
    Line("flux kvs unlink -N ns1 k; flux kvs get -N ns1 k", "flux-kvs: k: No such file or directory\n", 1),
    # copy and move between namespaces
    Line(
        "flux kvs put p.q=8; flux kvs copy --dst-namespace=ns1 p z; flux kvs get -N ns1 z.q; flux kvs get p.q", "8\n8\n"
    ),
    Line("flux kvs copy --src-namespace=ns1 z fromns; flux kvs get fromns.q", "8\n"),
    Line(
        "flux kvs move -S ns1 -D ns2 z y; flux kvs get -N ns2 y.q; flux kvs get -N ns1 z.q",
        "8\nflux-kvs: z.q: No such file or directory\n",
        1,
    ),
    # roots, versions, caches
    Line("test $(flux kvs getroot --owner) = $(id -u); flux kvs getroot", like(DIRREF)),
    Line("flux kvs getroot -N ns1 --sequence; flux kvs version -N ns1", like(r"(\d+)\n\1\n")),
    Line("flux kvs getroot -N nosuch", "flux-kvs: nosuch: Operation not supported\n", 1),
    Line(
        "v=$(flux kvs version -N ns2); flux kvs wait -N ns2 $((v + 1)) & flux kvs put -N ns2 v=1; wait; echo there",
        "there\n",
    ),
    Line("flux kvs dropcache; flux kvs get p.q", "8\n"),
    Line(
        "flux event sub --count=1 kvs.dropcache >ev & until test -s ev; do flux kvs dropcache --all; done; cat ev",
        like("kvs.dropcache\\s*\n"),
    ),
    Line("flux kvs dropcache --nosuch", like("flux-kvs dropcache: unrecognized option '--nosuch'\n.*"), 1),
    # namespaces
    Line(
        "flux kvs namespace create --owner=1234 mine; flux kvs namespace list | grep mine", like("mine +1234 +0x0+\n")
    ),
    Line("flux kvs namespace create --rootref=$(flux kvs getroot -b -N ns2) again; flux kvs get -N again y.q", "8\n"),
    Line("flux kvs namespace list", like("NAMESPACE +OWNER +FLAGS\n.*ns1 .*")),
    Line("flux kvs namespace remove ns1 ns2; flux kvs ls -N ns2", like(".*: Operation not supported\n"), 1),
    # eventlogs
    Line("flux kvs eventlog append --timestamp=1.5 e one '{\"a\":1}'; flux kvs eventlog append -t 3 e two"),
    Line(
        "flux kvs eventlog get --unformatted e",
        '{"timestamp":1.5,"name":"one","context":{"a":1}}\n{"timestamp":3.0,"name":"two"}\n',
    ),
    Line("flux kvs eventlog get e", "1.500000 one a=1\n3.000000 two\n"),
    Line("flux kvs eventlog get --stream e", "1.500000 one a=1\n3.000000 two\n"),
    Line("flux kvs eventlog get -S nosuch", like("flux-kvs: nosuch: No such file.*\n"), 1),
    Line("flux kvs eventlog get -S -w e", "flux-kvs: e: Invalid argument\n", 1),
    # without --watch there is nothing to wait for once the key is there
    Line("timeout 20 flux kvs eventlog get --waitcreate e", "1.500000 one a=1\n3.000000 two\n"),
    Line("TZ=UTC flux kvs eventlog get --human e", "[Jan01 00:00] one a=1\n[  +1.500000] two\n"),
    Line("TZ=UTC flux kvs eventlog get -H --color=always e", like("\033\\[1m\033\\[32m\\[Jan01 00:00\\].*")),
    Line("flux kvs eventlog get -Hu e", "flux-kvs: Do not specify --unformatted and --human\n", 1),
    Line("flux kvs eventlog get --count=1 e", "1.500000 one a=1\n"),
    Line(
        after_first("flux kvs eventlog get --watch --count=3 e", "flux kvs eventlog append -t 4 e three"),
        "1.500000 one a=1\n3.000000 two\n4.000000 three\n",
    ),
    Line(
        "flux kvs eventlog get --waitcreate --count=1 g2 & sleep .1; flux kvs eventlog append -t 5 g2 x; wait",
        "5.000000 x\n",
    ),
    Line(
        "flux kvs namespace create ev; flux kvs eventlog append -N ev -t 1 k hi; flux kvs eventlog get -N ev k",
        "1.000000 hi\n",
    ),
    Line("flux kvs eventlog wait-event --verbose e two", "1.500000 one a=1\n3.000000 two\n"),
    Line("flux kvs eventlog wait-event --quiet e two"),
    Line("flux kvs eventlog wait-event --unformatted e two", '{"timestamp":3.0,"name":"two"}\n'),
    Line("flux kvs eventlog wait-event --timeout=0.1 e nosuch", "flux-kvs: wait-event timeout on event 'nosuch'\n", 1),
    Line(
        "flux kvs eventlog wait-event --waitcreate h x & sleep .1; flux kvs eventlog append -t 6 h x; wait",
        "6.000000 x\n",
    ),
    Line("flux kvs eventlog wait-event nokey x", "flux-kvs: nokey: No such file or directory\n", 1),
    Line("flux kvs eventlog wait-event --color=always e two", "\033[32m3.000000\033[0m \033[33mtwo\033[0m\n"),
    Line("flux kvs eventlog wait-event -N ev k hi", "1.000000 hi\n"),
    Line("TZ=UTC flux kvs eventlog wait-event --human -v e two", "[Jan01 00:00] one a=1\n[  +1.500000] two\n"),
]


@pytest.fixture(scope="module")
def kvs_answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return answers(KVS, tmp_path_factory.mktemp("kvs"))


@pytest.mark.parametrize("index", range(len(KVS)), ids=names(KVS))
def test_kvs_option_has_its_effect(index: int, kvs_answers: list[dict[str, Any]]) -> None:
    check(KVS[index], kvs_answers[index])
