"""Constraint queries as text (RFC 35).

As a program: `flux python -m flux.constraint.parser [--default-op=OP] TEXT...`.
"""

from __future__ import annotations

import sys
from typing import Any, Collection, Dict, List, Mapping, Optional

from headrace.formats.spec import constraint

ConstraintSyntaxError = constraint.ConstraintSyntaxError


class ConstraintParser:
    """Parses queries into objects. A subclass defines its operators.

    `operator_map` gives other names to operators, and the default operator under the key None; `split_values` has the
    separator of an operator's values; terms of an operator in `combined_terms` are merged when "and" joins them.
    """

    operator_map: Mapping[Optional[str], str] = {}
    split_values: Mapping[str, str] = {}
    combined_terms: Collection[str] = ()

    def __init__(self, **_options: Any) -> None:
        self.operator_map = dict(self.operator_map)

    def parse(self, query: str) -> Dict[str, Any]:
        """The object of a query. Raises ConstraintSyntaxError."""
        syntax = constraint.Syntax(self.operator_map, self.split_values, frozenset(self.combined_terms))
        parsed: Dict[str, Any] = constraint.parse(query, syntax)
        return parsed


def main(argv: List[str]) -> int:
    import argparse
    import json

    parser = argparse.ArgumentParser(prog="flux.constraint.parser", description="Parse a constraint query")
    parser.add_argument("--default-op", metavar="OP", help="the operator of terms that have none")
    parser.add_argument("--debug", action="store_true", help="show what the text consists of, on standard error")
    parser.add_argument("expression", nargs="*", metavar="TEXT")
    args = parser.parse_args(argv)
    query = ConstraintParser()
    if args.default_op:
        query.operator_map = {None: args.default_op}
    text = " ".join(args.expression)
    if args.debug:
        for token in constraint.tokens(text):
            sys.stderr.write(f"TOKEN: {token}\n")
    if text:
        try:
            print(json.dumps(query.parse(text)))
        except ConstraintSyntaxError as exc:
            sys.stderr.write(f"flux.constraint.parser: {exc}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
