from __future__ import annotations

import subprocess
import sys

import pytest

PRINT = "import sys; from headrace.cli.common import encodings; encodings.settle(); sys.stdout.write(sys.argv[1])"


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "ascii:surrogateescape"])
def test_an_id_can_be_printed_in_any_encoding(flux, encoding):
    outcome = flux("job", "id", "--to=f58", "12345", PYTHONIOENCODING=encoding)
    assert (outcome.rc, outcome.stdout) == (0, "f4fr\n")


def test_errors_too_use_what_the_encoding_has(flux):
    outcome = flux("job", "id", "--to=f58", "ƒ0", PYTHONIOENCODING="latin-1")
    assert outcome.rc == 1
    assert outcome.stderr.startswith("flux-job: f0: ")


@pytest.mark.parametrize("utf8", ["0", "1"])
def test_an_id_is_ascii_in_the_locale_c_and_both_forms_are_read(flux, utf8):
    env = {"LC_ALL": "C", "PYTHONUTF8": utf8, "PYTHONIOENCODING": ""}
    for text in ("f4fr", "\u01924fr"):
        outcome = flux("job", "id", "--to=f58", text, **env)
        assert (outcome.rc, outcome.stdout, outcome.stderr) == (0, "f4fr\n", "")


@pytest.mark.parametrize(
    ("encoding", "wanted"),
    [
        ("latin-1", b"fy\xe4??|"),
        ("ascii", b"fy???|"),
        ("ascii:xmlcharrefreplace", b"&#402;&#10004;&#228;&#8364;&#128640;&#9500;"),
        ("utf-8", "ƒ✔ä€🚀├".encode()),
    ],
)
def test_each_character_becomes_one_that_the_encoding_has(encoding, wanted):
    env = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PRINT, "ƒ✔ä€🚀├"], capture_output=True, check=False, env=env, timeout=60
    )
    assert (done.stdout, done.stderr) == (wanted, b"")


def test_bytes_of_names_that_are_no_text_stay_what_they_are():
    env = {"PYTHONIOENCODING": "latin-1:surrogateescape", "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PRINT, b"\xff\xc3"], capture_output=True, check=False, env=env, timeout=60
    )
    assert (done.stdout, done.stderr) == (b"\xff\xc3", b"")
