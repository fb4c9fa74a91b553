"""The process that runs a site's validators: the classes `Validator` in its files.

The validators run in a separate process because they may do anything. The arguments are the number of files, their
paths, and the options. Standard input is a socket: the process reads a line of JSON for each job and writes a line with
the result. Output that a validator prints goes to standard error.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import socket
import sys
from typing import Any

from headrace.engine.process import linux


def main(argv: list[str]) -> None:
    linux.die_with_parent(signal.SIGKILL)
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    count = int(argv[0])
    validators = _validators(argv[1 : count + 1], argv[count + 1 :])
    with channel.makefile("rw", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            lines.write(f"{_validated(validators, json.loads(line))}\n")
            lines.flush()


def _validators(files: list[str], options: list[str]) -> list[Any]:
    parser = argparse.ArgumentParser("job-validator", add_help=False, allow_abbrev=False)
    validators = []
    for number, path in enumerate(files):
        spec = importlib.util.spec_from_file_location(f"validator_{number}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        validators.append(module.Validator(parser=parser))
    args = parser.parse_args(options)
    for validator in validators:
        validator.configure(args)
    return validators


def _validated(validators: list[Any], job: dict[str, Any]) -> Any:
    """The ValidatorResult. An exception other than the types caught here ends the process, as in Flux."""
    classes = importlib.import_module("flux.job.validator")
    info, result = classes.ValidatorJobInfo(job), classes.ValidatorResult()
    for validator in validators:
        try:
            verdict = validator.validate(info)
            if verdict is not None:
                result.push_result(*verdict)
        except (ValueError, TypeError, OSError) as exc:
            result.push_result(1, str(exc))
            break
    return result
