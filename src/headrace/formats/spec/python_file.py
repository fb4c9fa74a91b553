"""Python files that users name: a module of a broker, a file of `flux modprobe`.

Their code is compiled from the text at each load. A `.pyc` beside it also counts for another text of the same length
that was written in the same second, so an edited file could run as it was before.
"""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def load(name: str, path: str) -> ModuleType:
    """Run the file at `path` as a module of that name, which is not entered in `sys.modules`.

    Raises OSError, SyntaxError, and whatever the file raises.
    """
    spec = spec_from_file_location(name, path, loader=_Loader(name, path))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
