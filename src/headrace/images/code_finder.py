"""The importer of the view: finds modules in one file with the code of all modules.

`code_store` writes the file. The interpreter imports this module before packages os and site, so it uses only built-in
modules (and not package __future__, which is a file). A look-up reads a dictionary; it does not search folders or read
the status of files, which saves a third of the time of a broker's start. The modules' paths are below the folder
`root`. Modules that users' own Pythons need, too, exist there as files.
"""

import marshal
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any

HEAD = b"HRCODE01"
# importlib, under the names that it has before the first import.
_machinery: "Any" = sys.modules["_frozen_importlib"]
_files: "Any" = sys.modules["_frozen_importlib_external"]


class CodeFinder:
    """Finder and loader of the modules in the file at `path`.

    The file maps names to (relative path of the source, whether it is a package, offset, size, whether the code is
    compressed). Extension modules have the offset -1.
    """

    def __init__(self, path: str, root: str) -> None:
        self.path = path
        self.root = root
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            head = posix.read(fd, 16)
            if head[:8] != HEAD:
                raise ImportError(f"{path}: not a file of modules")
            length = int.from_bytes(head[8:], "little")
            self.index: dict[str, tuple[str, bool, int, int, bool]] = marshal.loads(posix.pread(fd, length, 16))
        finally:
            posix.close(fd)
        self.start = 16 + length

    def find_spec(self, name: str, path: object = None, target: object = None) -> "Any":
        entry = self.index.get(name)
        if entry is None:
            return None
        relative, is_package, offset, _size, _compressed = entry
        origin = f"{self.root}/{relative}"
        if offset < 0:
            return _files.spec_from_file_location(name, origin, loader=_files.ExtensionFileLoader(name, origin))
        spec = _machinery.ModuleSpec(name, self, origin=origin, is_package=is_package)
        # Without a location, a module would not get __file__.
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations.append(origin.rpartition("/")[0])
        return spec

    def create_module(self, spec: object) -> "ModuleType | None":
        return None

    def exec_module(self, module: "ModuleType") -> None:
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, name: str) -> "CodeType":
        _relative, _is_package, offset, size, is_compressed = self._entry(name)
        fd = posix.open(self.path, posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            data = posix.pread(fd, size, self.start + offset)
        finally:
            posix.close(fd)
        if is_compressed:
            import zlib  # an extension module in some interpreters, which this finder finds

            data = zlib.decompress(data)
        code: CodeType = marshal.loads(data)
        return code

    # Methods that runpy, pkgutil and inspect call.

    def get_source(self, name: str) -> str | None:
        self._entry(name)
        return None

    def get_filename(self, name: str) -> str:
        return f"{self.root}/{self._entry(name)[0]}"

    def is_package(self, name: str) -> bool:
        return self._entry(name)[1]

    def get_data(self, path: str) -> bytes:
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            return posix.read(fd, posix.fstat(fd).st_size)
        finally:
            posix.close(fd)

    def _entry(self, name: str) -> tuple[str, bool, int, int, bool]:
        try:
            return self.index[name]
        except KeyError:
            raise ImportError(f"no module named {name!r}", name=name) from None


def install(path: str, root: str) -> None:
    """Search the file at `path` before the folders of sys.path, and after built-in modules."""
    finders: list[Any] = sys.meta_path
    at = next((i for i, one in enumerate(finders) if one is _files.PathFinder), len(finders))
    finders.insert(at, CodeFinder(path, root))
