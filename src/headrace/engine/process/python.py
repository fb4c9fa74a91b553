"""Programs of ours in a Python of their own, which has the modules of this one.

`python -m` looks for modules in the working directory before all others, and whoever may write there would run code as
the user of this process: for an instance of root that is anybody where it was started in /tmp.
"""

from __future__ import annotations

import sys

# The first argument is the search path, one folder a line.
_PATH = "import sys; sys.path[:] = sys.argv.pop(1).split(chr(10)); "
_MODULE = f"{_PATH}import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"


def calling(statement: str, *arguments: str, first: str = "") -> list[str]:
    """The command line of a Python that executes a statement; `sys.argv[1:]` are the arguments. `first` is a folder to
    be searched before those of this process.
    """
    return [sys.executable, "-c", _PATH + statement, _folders(first), *arguments]


def running(module: str, *arguments: str) -> list[str]:
    """The command line of a Python that runs a module, as `python -m` does."""
    return [sys.executable, "-c", _MODULE, _folders(""), module, *arguments]


def _folders(first: str) -> str:
    # "" stands for the working directory.
    return "\n".join(folder for folder in (first, *sys.path) if folder)
