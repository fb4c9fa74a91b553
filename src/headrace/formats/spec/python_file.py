"""Loading of Python files that users name: a broker module, or a file of `flux modprobe`.

The file is compiled at each load, without a `.pyc` file. A `.pyc` file is also taken to match a newer text that has the
same length and was written in the same second, so an edit could be ignored.
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
    """Run the file at `path` as a module called `name`, which is not added to `sys.modules`.

    Raises OSError, SyntaxError, and any exception of the file's code.
    """
    spec = spec_from_file_location(name, path, loader=_Loader(name, path))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
