"""Certificates for brokers that find each other by configuration."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import keygen
from headrace.cli.common.errors import CommandError
from headrace.engine.broker.boot.config import read_certificate


def test_a_certificate_is_its_owners_only_whatever_was_there(tmp_path: Path) -> None:
    path = tmp_path / "cert"
    path.write_text("something longer than " + "a certificate " * 100)
    path.chmod(0o644)
    assert keygen.main([str(path)]) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    public, secret = read_certificate(str(path))
    assert public != secret
    assert "a certificate" not in path.read_text()


def test_every_certificate_is_another(tmp_path: Path) -> None:
    for name in "ab":
        assert keygen.main([str(tmp_path / name)]) == 0
    assert read_certificate(str(tmp_path / "a")) != read_certificate(str(tmp_path / "b"))


def test_names_and_metadata_are_in_it(tmp_path: Path) -> None:
    path = tmp_path / "cert"
    assert keygen.main(["--name=Jörg's cluster", "--meta=rack=a=b,,row=,level", str(path)]) == 0
    lines = path.read_text(encoding="utf-8").splitlines()
    # the version that Flux's own tools compare is Flux's
    for line in (
        '    keygen.flux-core-version = "0.88.0"',
        '    name = "Jörg\'s cluster"',
        '    rack = "a=b"',
        '    row = ""',
        '    level = ""',
    ):
        assert line in lines
    assert read_certificate(str(path))


@pytest.mark.parametrize(
    "option",
    ["--meta==b", '--meta=a="', "--meta=a b=c", '--name=a"b', "--name=a\nsecret-key = x", "--name=\udcff"],
)
def test_what_has_no_place_in_a_certificate_is_refused_and_the_old_one_is_kept(option: str, tmp_path: Path) -> None:
    path = tmp_path / "cert"
    path.write_text("the old one")
    with pytest.raises(CommandError):
        keygen.main([option, str(path)])
    assert path.read_text() == "the old one"


def test_without_a_path_no_secret_is_shown(capsys: Any) -> None:
    assert keygen.main([]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "flux-keygen: WARNING: add PATH argument to save generated certificate\n")


def test_a_path_that_cannot_be_written_is_named(flux: Any) -> None:
    done = flux("keygen", "/nosuch/cert")
    assert (done.rc, done.stderr) == (1, "flux-keygen: /nosuch/cert: No such file or directory\n")
    assert not os.path.exists("/nosuch")
