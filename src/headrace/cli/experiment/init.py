"""`headrace experiment init`."""

from __future__ import annotations

from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser

_KINDS = ("flux-cloud",)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("file", nargs="?", default="experiment.yaml", metavar="FILE", help="Write this file")
    parser.add_argument(
        "--from",
        dest="source",
        nargs=2,
        metavar=("flux-cloud", "FILE"),
        help="Begin with an experiments.yaml of flux-cloud, instead of an example",
    )


def main(options: Namespace) -> int:
    text = _converted(*options.source) if options.source else _example()
    try:
        with open(options.file, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CommandError(f"{options.file} exists: remove it, or choose another name") from None
    except OSError as exc:
        raise CommandError(f"{options.file}: {exc.strerror}") from None
    print(f"wrote {options.file}; next: headrace experiment plan {options.file}")
    return 0


def _example() -> str:
    from headrace.experiments.file.first_file import EXAMPLE

    return EXAMPLE


def _converted(kind: str, path: str) -> str:
    from headrace.experiments.file import InvalidExperiment
    from headrace.experiments.file.first_file import from_flux_cloud

    if kind not in _KINDS:
        raise CommandError(f'--from: "{kind}" is not a kind of file: use {" or ".join(_KINDS)}', 2)
    try:
        with open(path, encoding="utf-8") as file:
            return from_flux_cloud(file.read(), path)
    except InvalidExperiment as exc:
        raise CommandError(str(exc), bare=True) from None
    except UnicodeDecodeError:
        raise CommandError(f"{path}: not UTF-8 text") from None
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror}") from None
