"""`flux.util.Tree`: labels in a tree, printed with lines between them."""

from __future__ import annotations

import shutil
from typing import Dict, Iterator, List, Optional, Tuple

# The text before a child, before the last child, and before the lines below each of these.
_STYLES = {
    "box": ("├── ", "└── ", "│   ", "    "),
    "compact": ("├─", "└─", "│ ", "  "),
    "ascii": ("|-- ", "`-- ", "|   ", "    "),
}


class Tree:
    """A label and the trees below it.

    With `combine_children`, leaves with equal labels are merged and counted.
    """

    def __init__(self, label: str, combine_children: bool = False) -> None:
        self.label = label
        self.combine_children = combine_children
        self.children: List[Tree] = []
        self._count = 1

    def append(self, label: str) -> Tree:
        """Add a leaf and return it."""
        return self.append_tree(Tree(label, self.combine_children))

    def append_tree(self, tree: Tree) -> Tree:
        self.children.append(tree)
        return tree

    def render(
        self, style: str = "box", level: Optional[int] = None, skip_root: bool = False, truncate: bool = True
    ) -> None:
        """Print the tree, `level` levels below the root, truncated to the terminal's width with a `+`."""
        if style not in _STYLES:
            raise ValueError(f"unknown style {style!r}: known are {', '.join(_STYLES)}")
        width = shutil.get_terminal_size().columns if truncate else 0
        tops = self._shown_children() if skip_root else [self]
        for top in tops:
            for line in top._lines(_STYLES[style], "", "", level):
                print(line[: width - 1] + "+" if width and len(line) > width else line)

    def _lines(self, style: Tuple[str, str, str, str], head: str, below: str, level: Optional[int]) -> Iterator[str]:
        yield head + (f"{self._count}*[{self.label}]" if self._count > 1 else self.label)
        if level == 0:
            return
        children = self._shown_children()
        for child in children:
            last = child is children[-1]
            yield from child._lines(
                style, below + style[last], below + style[2 + last], None if level is None else level - 1
            )

    def _shown_children(self) -> List[Tree]:
        if not self.combine_children:
            return self.children
        shown: List[Tree] = []
        leaves: Dict[str, Tree] = {}
        for child in self.children:
            if child.children:
                shown.append(child)
            elif child.label in leaves:
                leaves[child.label]._count += child._count
            else:
                leaf = Tree(child.label)
                leaf._count = child._count
                leaves[child.label] = leaf
                shown.append(leaf)
        return shown
