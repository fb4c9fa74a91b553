"""`flux.kvs` against a real instance."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from bindings import run


def test_values_are_json_text_or_bytes():
    lines = run(
        """
        import flux.kvs as kvs
        with kvs.get_dir(h) as top:
            for name, value in dict(n=None, d={"a": 1}, j=b"{}", t=b"{", b=bytes([222, 33])).items():
                top[name] = value
        kvs.put(h, "raw", "as it is", raw=True)
        kvs.commit(h)
        print([kvs.KVSDir(h)[name] for name in ("n", "d", "j", "t", "b", "raw")])
        """
    )
    assert lines == ["[None, {'a': 1}, {}, '{', b'\\xde!', 'as it is']"]


def test_a_directory_is_what_its_key_has():
    lines = run(
        """
        import flux.kvs as kvs
        kvs.put(h, "a.b", 1)
        kvs.commit(h)
        found = kvs.get(h, "a")
        print(type(found).__name__, dict(found), kvs.get(h, "a.b"))
        for ask in (lambda: kvs.get_key_direct(h, "a"), lambda: kvs.get(h, "nosuch")):
            try:
                ask()
            except OSError as exc:
                print(type(exc).__name__)
        """
    )
    assert lines == ["KVSDir {'b': 1} 1", "IsADirectoryError", "FileNotFoundError"]


def test_transactions_are_apart_and_directories_share_theirs():
    lines = run(
        """
        import flux.kvs as kvs
        with kvs.KVSTxn(h, "base") as txn:
            txn.mkdir("below")
            txn.put("x", 1)
        one, two = kvs.get_dir(h, "base"), kvs.get_dir(h, "base")
        one["below"]["deep"] = 1
        two["other"] = 2
        one.commit()
        print(kvs.get(h, "base.below.deep"), kvs.exists(h, "base.other"), kvs.isdir(h, "base.x"))
        two.commit_async().get()
        print(sorted(kvs.get_dir(h, "base")), one.key_at("x"))
        txn = kvs.KVSTxn(h)
        kvs.put_symlink(h, "link", "base.x", _kvstxn=txn)
        kvs.commit(h)
        print(kvs.exists(h, "link"))
        kvs.commit(h, _kvstxn=txn)
        print(kvs.get(h, "link"))
        """
    )
    assert lines == ["1 False False", "['below', 'other', 'x'] base.x", "False", "1"]


def test_a_refused_change_is_told_and_forgotten():
    lines = run(
        """
        import flux.kvs as kvs
        def failing(fn, *args):
            try:
                print("no error", fn(*args))
            except Exception as exc:
                print(type(exc).__name__, getattr(exc, "errno", ""))
        kvs.put(h, ".", 1)
        failing(kvs.commit, h)
        kvs.commit(h)
        for fn in (kvs.get, kvs.exists, kvs.isdir, kvs.get_dir, kvs.put_mkdir, kvs.put_unlink):
            failing(fn, h, "")
        failing(kvs.KVSDir)
        failing(lambda: kvs.KVSDir(h)["nosuch"])
        """
    )
    assert lines == ["OSError 22"] * 7 + ["ValueError ", "KeyError "]


def test_the_namespace_of_the_environment_is_the_default():
    lines = run(
        """
        import os, flux.kvs as kvs
        kvs.namespace_create(h, "mine")
        os.environ["FLUX_KVS_NAMESPACE"] = "mine"
        kvs.put(h, "k", 1)
        kvs.commit(h)
        print(kvs.exists(h, "k"), kvs.exists(h, "k", namespace="primary"))
        """
    )
    assert lines == ["True False"]
