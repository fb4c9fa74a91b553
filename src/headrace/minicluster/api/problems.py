"""The error of a MiniCluster file with problems."""

from __future__ import annotations

from headrace.k8s.objects.problems import Problem


class InvalidMiniCluster(ValueError):
    """The file has no valid MiniCluster; `problems` has all its problems."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems
