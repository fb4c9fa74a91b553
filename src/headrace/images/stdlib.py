"""The part of Python's standard library in the view: everything except what is listed here.

Left out are modules that neither the engine nor a command uses, and that programs under `flux python` cannot rely on in
a container: tests, graphical interfaces, TLS (OpenSSL is as large as the rest), compression other than zlib, terminal
libraries, mail and other protocols, codecs of single countries.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Modules, and packages with their modules.
LEFT_OUT = _names(
    """
    _aix_support _bootsubprocess _compression _osx_support _pydecimal _pyio aifc antigravity asynchat asyncore
  bdb bz2 cProfile cgi cgitb chunk code codeop crypt curses dbm distutils doctest ensurepip ftplib html idlelib
  imaplib imghdr imp lib2to3 lzma mailbox mailcap modulefinder msilib multiprocessing netrc nis nntplib nturl2path
  optparse ossaudiodev pdb pickletools pipes plistlib poplib profile pstats pty pyclbr pydoc pydoc_data readline
  rlcompleter sched secrets smtpd smtplib sndhdr socketserver ssl sunau symtable
  tabnanny telnetlib test this tkinter trace tracemalloc turtle turtledemo unittest uu venv wave webbrowser wsgiref
  xdrlib xmlrpc zipapp zoneinfo _distutils_system_mod _markupbase cmd compileall filecmp
    fileinput ntpath pprint py_compile shelve statistics timeit __hello__ __phello__
  asyncio.__main__ asyncio.proactor_events asyncio.windows_events asyncio.windows_utils concurrent.futures.process
  ctypes._aix ctypes.macholib ctypes.test ctypes.wintypes logging.config urllib.robotparser
  http.cookiejar http.cookies http.server json.tool sqlite3.test xml.dom
    """
)
if sys.version_info >= (3, 11):
    # Former names of parts of `re`, from when it was a module.
    LEFT_OUT |= {"sre_compile", "sre_constants", "sre_parse"}
else:
    # Modules email and pathlib import these.
    LEFT_OUT -= {"ntpath", "uu"}
# Modules that are left out even of the operator's image, which has the other modules.
LEFT_OUT_EVERYWHERE = _names(
    "antigravity distutils ensurepip idlelib lib2to3 pydoc_data test this tkinter turtle turtledemo"
)
# The modules of package encodings in the view.
ENCODINGS = _names(
    """
    aliases ascii base64_codec charmap cp1252 cp437 hex_codec idna latin_1 punycode raw_unicode_escape unicode_escape
    utf_16 utf_16_be utf_16_le utf_32 utf_32_be utf_32_le utf_7 utf_8 utf_8_sig
    """
)
# Extension modules in the view; interpreters differ in which of them are built in.
EXTENSIONS = _names(
    """
    _asyncio _bisect _blake2 _contextvars _csv _ctypes _datetime _decimal _elementtree _heapq _json _md5 _opcode
    _pickle _posixsubprocess _queue _random _sha1 _sha2 _sha256 _sha3 _sha512 _socket _sqlite3 _statistics _struct
    _typing array binascii cmath fcntl grp math mmap pyexpat resource select syslog termios unicodedata zlib
    """
)
# The operator also needs TLS, and the imports of its HTTP library.
OPERATOR_EXTENSIONS = EXTENSIONS | _names("_bz2 _hashlib _lzma _multiprocessing _posixshmem _ssl _uuid _zoneinfo")


def is_left_out(name: str, left_out: frozenset[str] = LEFT_OUT) -> bool:
    """True if the view lacks the module with this full name."""
    package, _dot, rest = name.partition(".")
    if package == "encodings" and rest:
        return rest not in ENCODINGS
    parts = name.split(".")
    return any(".".join(parts[:depth]) in left_out for depth in range(1, len(parts) + 1))


def modules(folder: Path, left_out: frozenset[str] = LEFT_OUT) -> dict[str, Path]:
    """The source of each module of the standard library in `folder` by full name, without those left out."""
    found: dict[str, Path] = {}
    for here, folders, files in os.walk(folder):
        relative = Path(here).relative_to(folder)
        folders[:] = sorted(one for one in folders if one.isidentifier() and Path(here, one, "__init__.py").exists())
        package = ".".join(relative.parts)
        folders[:] = [one for one in folders if not is_left_out(f"{package}.{one}" if package else one, left_out)]
        for name in sorted(files):
            stem, dot, ending = name.rpartition(".")
            if ending != "py" or not dot or not stem.isidentifier():
                continue
            full = package if stem == "__init__" else f"{package}.{stem}" if package else stem
            # The interpreter's build configuration is useful only for building extension modules.
            if full and not is_left_out(full, left_out) and not full.startswith("_sysconfigdata"):
                found[full] = Path(here, name)
    return found
