"""Medians with intervals, comparisons and tests. Pure functions on numbers.

`medians` and `scaling` need the standard library alone. `drift` and `comparison` import numpy and scipy when they are
called (the extra `experiments`).
"""

from headrace.experiments.stats.medians import median_interval as median_interval
