"""A kind of contract for import-linter: a package is divided into wings, and each wing imports only from the wings that
its line names.

The option `wings` has a line for each wing: its name, its modules, and after a colon the wings from which it imports,
which are on lines above it. Modules are relative to `container`. Of several names that fit a module the longest counts,
and `*` fits every module. The contract is broken by an import that no line allows, by a module that is in no wing, and
by a wing after a colon from which nothing is imported.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from grimp import ImportGraph
from importlinter.application import contract_utils, output
from importlinter.application.contract_utils import AlertLevel
from importlinter.domain import fields
from importlinter.domain.contract import Contract, ContractCheck, InvalidContractOptions


class Wing(NamedTuple):
    """A wing with the names of its modules and of the wings that it may import from."""

    name: str
    modules: list[str]
    allowed: list[str]


def parse(lines: list[str]) -> dict[str, Wing]:
    """The wings by name. Raises InvalidContractOptions for a line of another form, or that names a wing below."""
    wings: dict[str, Wing] = {}
    for line in lines:
        head, _, below = line.partition(":")
        name, equals, modules = head.partition("=")
        allowed = below.split()
        unknown = [one for one in allowed if one not in wings]
        if not equals or name.strip() in wings or unknown:
            why = f"names {unknown[0]}, which is not above it" if unknown else "is not NAME = MODULE...: WING..."
            raise InvalidContractOptions({"wings": f"{line!r} {why}"})
        wings[name.strip()] = Wing(name.strip(), modules.split(), allowed)
    return wings


class Wings(Contract):
    """Options: `container`, `wings`, `ignore_imports` (imports that no line allows, yet)."""

    type_name = "wings"

    container = fields.StringField()
    wings = fields.ListField(subfield=fields.StringField())
    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare each import between wings with the lines."""
        removed = contract_utils.remove_ignored_imports_and_report(graph, self.ignore_imports, AlertLevel.ERROR)
        wings = parse(self.wings)
        places = {
            self.container if module == "*" else f"{self.container}.{module}": wing
            for wing in wings.values()
            for module in wing.modules
        }
        inside = [module for module in graph.modules if module.startswith(f"{self.container}.")]
        homes = {module: self._home(module, places) for module in inside}
        used: set[tuple[str, str]] = set()
        wrong = []
        for module, wing in homes.items():
            for imported in graph.find_modules_directly_imported_by(module):
                other = homes.get(imported)
                if wing is None or other is None or wing is other:
                    continue
                used.add((wing.name, other.name))
                if other.name not in wing.allowed:
                    wrong.append(
                        (wing.name, other.name, graph.get_import_details(importer=module, imported=imported)[0])
                    )
        idle = [(wing.name, one) for wing in wings.values() for one in wing.allowed if (wing.name, one) not in used]
        homeless = sorted(module for module, wing in homes.items() if wing is None)
        return ContractCheck(
            kept=not (wrong or idle or homeless),
            metadata={"wrong": wrong, "idle": idle, "homeless": homeless},
            warnings=list(removed.warnings),
            ignored_import_count=removed.ignored_import_count,
        )

    def _home(self, module: str, places: dict[str, Wing]) -> Wing | None:
        """The wing of a module: that of the longest name in a line that it begins with."""
        while module not in places and module != self.container:
            module = module.rpartition(".")[0]
        return places.get(module)

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print what is wrong, an import a line."""
        found: dict[str, Any] = check.metadata
        for wing, other, details in sorted(found["wrong"], key=lambda one: one[:2]):
            where = f"{details['importer']}:{details['line_number']}"
            output.print(f"{where} imports {details['imported']}, but the line of {wing} does not name {other}")
        for wing, other in found["idle"]:
            output.print(f"{wing} imports nothing from {other}: its line need not name it")
        for module in found["homeless"]:
            output.print(f"{module} is in no wing")
