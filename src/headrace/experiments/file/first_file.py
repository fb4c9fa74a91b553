"""The text of a new file: one that runs anywhere, with comments, or a file of flux-cloud with what to know of it."""

from __future__ import annotations

import os

from .load import read_text

EXAMPLE = """\
# An experiment: how long a computation takes on 1 and 2 nodes, with two numbers of terms.
#   headrace experiment plan FILE      what would run
#   headrace experiment run FILE       run it here; the results are in a new folder
#   headrace experiment report DIR     the results, with plots and confidence intervals

# Each combination of sizes (in nodes), parameters and jobs is a cell. Its runs are repeated.
matrix:
  size: [1, 2]
parameters:
  terms: [500000, 1000000]
# exclude:
#   - {size: 1, terms: 1000000}

warmup: 1          # runs of each cell that do not count
repeats: 5         # or, until the interval is narrow: {min: 5, max: 20, until: {metric: time, relative-ci: 0.05}}
order: interleaved # or random (with a seed), or as-written

jobs:
  pi:
    # {{NAME}} is a parameter, or one of cell, job, machine, size and target.
    command: |
      python3 -c "
      import os, time
      begun = time.perf_counter()
      rank, tasks = int(os.environ.get('FLUX_TASK_RANK', 0)), int(os.environ.get('FLUX_JOB_SIZE', 1))
      total = sum((-1) ** k / (2 * k + 1) for k in range(rank, {{terms}}, tasks))
      if rank == 0:
          print('time:', time.perf_counter() - begun)
      "
    tasks: "{{size}}"
    # environment: {OMP_NUM_THREADS: 1}
    # files: [input.txt, {template: input.in}, {out: "*.dat"}]
    timeout: 5m
    # Numbers in the output: the group in parentheses, of the last match. A run without its metric has failed.
    metrics:
      time: {regex: '^time: ([0-9.e-]+)$', unit: s, better: lower}
    # check: {exit: 0, regex: '^time'}

# Where cells run: on brokers of this machine if there is no target. With several, each cell runs on all of them.
# targets:
#   here: {type: local}
#   allocation: {type: instance}
#   cloud: {type: kubernetes, context: my-cluster, price: {m5.large: 0.096}, up: ./up.sh, down: ./down.sh}
# budget: {cost: 10, node-hours: 5}
"""

_HEAD = """\
# From {source}
# This file was written for flux-cloud. It has the same cells and repeats here, but their runs are interleaved;
# `order: as-written` runs all repeats of a job together. Cells run on brokers of this machine, or with
# `--target kubernetes` on a cluster that exists. To name clusters, with prices, and with scripts that make and remove
# them:
# targets:
#   cloud: {{type: kubernetes, context: my-cluster, price: {{MACHINE: 0.10}}, up: ./up.sh, down: ./down.sh}}
# Numbers of the output become metrics of a job:
#     metrics: {{time: {{regex: 'time: ([0-9.]+)', unit: s}}}}
"""


def from_flux_cloud(text: str, path: str) -> str:
    """The text of `path`, a file of flux-cloud, with comments before it. Raises InvalidExperiment."""
    experiment = read_text(text, path)
    head = _HEAD.format(source=" ".join(os.path.basename(path).split()))
    if experiment.notes:
        head += "#\n# What to know of it:\n"
        head += "".join(f"#   {note.removeprefix(f'{path}:').partition(': ')[2]}\n" for note in experiment.notes)
    return f"{head}\n{text}"
