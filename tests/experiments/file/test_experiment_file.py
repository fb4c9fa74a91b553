"""What the keys of an experiment's file mean, and the error with line and key for each that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.experiments.file import InvalidExperiment, read
from headrace.experiments.file.load import read_text
from headrace.experiments.values import Budget, Check, Experiment, Metric, Repeats, Target, Until

JOB = "jobs: {a: {command: run}}\n"


def experiment(text: str) -> Experiment:
    return read_text(text, "exp.yaml")


def ids(text: str) -> list[str]:
    return [cell.id for cell in experiment(text).cells]


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidExperiment) as caught:
        experiment(text)
    return str(caught.value).splitlines()


def test_a_job_alone_runs_once_on_one_local_node() -> None:
    found = experiment(JOB)
    assert found.targets == (Target(name="local"),)
    (cell,) = found.cells
    assert (cell.id, cell.size, cell.repeats, cell.job.command) == ("a-1", 1, Repeats(), "run")
    assert (found.name, found.order, found.seed, found.notes) == ("exp", "interleaved", None, ())


def test_cells_are_all_combinations_and_their_ids_name_what_differs() -> None:
    text = """\
matrix: {size: [1, 2]}
targets: {here: {}, cloud: {type: kubernetes}}
parameters: {steps: [10, 20], solver: [cg]}
jobs: {a: {command: run}, b: {command: run, size: 2}}
"""
    assert ids(text) == [
        *("a-1-here-steps=10", "a-1-here-steps=20", "a-1-cloud-steps=10", "a-1-cloud-steps=20"),
        *("a-2-here-steps=10", "a-2-here-steps=20", "a-2-cloud-steps=10", "a-2-cloud-steps=20"),
        *("b-2-here-steps=10", "b-2-here-steps=20", "b-2-cloud-steps=10", "b-2-cloud-steps=20"),
    ]
    machines = (
        "matrix: {size: [2], machine: [m5.large, c5]}\njobs: {a: {command: run}, b: {command: run, machine: c5}}\n"
    )
    assert ids(machines) == ["a-2-m5.large", "a-2-c5", "b-2-c5"]


def test_ids_are_names_of_files_and_unique() -> None:
    text = f"{JOB}parameters: {{x: [a/b, a_b, ../c, '', true, {'y' * 500}, {'y' * 501}]}}\n"
    found = ids(text)
    assert found[:5] == ["a-1-x=a_b", "a-1-x=a_b~2", "a-1-x=.._c", "a-1-x=_", "a-1-x=true"]
    assert len(set(found)) == len(found)
    long = ids(
        "jobs: {a: {command: x}}\nparameters: {" + ", ".join(f"p{n}: [{'z' * 39}1, 2]" for n in range(6)) + "}\n"
    )
    assert len(set(long)) == 64
    assert max(map(len, long)) <= 120


def test_names_are_filled_in() -> None:
    text = """\
matrix: {size: [2]}
parameters: {steps: [10], flag: [true], name: [x y]}
variables: {zone: a, ranks: 3}
jobs:
  a:
    command: run {{steps}} {{ flag }} {{.Id}} ${steps} {{zone}} '{{name}}'
    environment: {STEPS: "{{steps}}", SIZE: "{{size}}", N: 5}
    options: --output={{cell}}.out --dry-run
    files: ["{{job}}.in", {out: "{{steps}}/*"}]
    tasks: "{{ranks}}"
    image: registry/{{zone}}
    resources: {limits: {cpu: "{{steps}}"}}
"""
    with pytest.raises(InvalidExperiment, match=r"a\.in does not exist"):
        experiment(text)
    job = experiment(text.replace('"{{job}}.in", ', "")).cells[0].job
    assert job.command == "run 10 true {{.Id}} ${steps} a 'x y'"
    assert job.environment == {"STEPS": "10", "SIZE": "2", "N": "5"}
    assert job.options == ("--output=a-2.out", "--dry-run")
    assert (job.outputs, job.tasks, job.image) == (("10/*",), 3, "registry/a")
    assert job.minicluster == {"containers": [{"resources": {"limits": {"cpu": 10}}}]}


def test_jobs_have_what_the_file_says() -> None:
    text = """\
targets:
  cloud: {type: kubernetes, context: c, namespace: n, price: {m5: 0.1, c5: 1}, up: ./up.sh, down: ./down.sh}
  here: {type: instance, uri: local:///x, price: 2}
budget: {cost: 0, node-hours: 5}
warmup: 2
repeats: {min: 3, max: 9, until: {metric: time, relative-ci: 0.05}}
order: random
seed: 7
timeout: 1.5h
retry: 1
name: mine
jobs:
  a:
    command: run
    nodes: 1
    tasks: 4
    cores: 2
    gpus: 1
    timeout: 30
    retry: 0
    metrics:
      time: {regex: "^time ([0-9.]+)$", unit: s}
      speed: {json: runs.0.speed, from: out/x.json, better: higher, required: false}
    check: {regex: ok, exit: 3}
  b: {command: run, repeats: 4, warmup: 0, metrics: {time: {regex: "(x)", from: stderr}}}
"""
    found = experiment(text)
    cloud, here = found.targets
    assert cloud == Target(
        name="cloud",
        type="kubernetes",
        context="c",
        namespace="n",
        prices={"m5": 0.1, "c5": 1.0},
        up="./up.sh",
        down="./down.sh",
        line=2,
    )
    assert (here.uri, here.prices) == ("local:///x", {"": 2.0})
    assert found.budget == Budget(cost=0.0, node_hours=5.0, line=4)
    assert (found.order, found.seed, found.name) == ("random", 7, "mine")
    a, b = found.cells[0], found.cells[2]
    assert (a.job.nodes, a.job.tasks, a.job.cores, a.job.gpus, a.job.timeout, a.job.retry) == (1, 4, 2, 1, 30.0, 0)
    assert a.job.metrics == (
        Metric(name="time", regex="^time ([0-9.]+)$", unit="s", line=22),
        Metric(name="speed", json="runs.0.speed", source="out/x.json", better="higher", required=False, line=23),
    )
    assert a.job.check == Check(regex="ok", exit=3)
    assert a.repeats == Repeats(least=3, most=9, until=Until(metric="time", relative_ci=0.05), warmup=2)
    assert (b.job.timeout, b.job.retry, b.repeats) == (5400.0, 1, Repeats(least=4, most=4, warmup=0))


def test_exclude_leaves_out_cells_that_match_all_of_an_item() -> None:
    text = "matrix: {size: [1, 2]}\nparameters: {steps: [10, 20], on: [true, false]}\n" + JOB
    kept = ids(text + "exclude: [{size: 1, steps: [10, 20], on: true}, {steps: 20, job: a, size: 2}]\n")
    assert kept == ["a-1-steps=10-on=false", "a-1-steps=20-on=false", "a-2-steps=10-on=true", "a-2-steps=10-on=false"]
    found = experiment(text + "exclude:\n  - {steps: 30}\n")
    assert found.notes == ("exp.yaml:5: exclude[0]: leaves out nothing: no cell has these values",)


def test_a_job_that_runs_nowhere_is_noted() -> None:
    found = experiment("matrix: {size: [1]}\njobs:\n  a: {command: run}\n  b: {command: run, size: 3}\n")
    rule = "runs nowhere: at no size, on no machine, or all of its cells are excluded"
    assert found.notes == (f"exp.yaml:4: jobs.b: {rule}",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("repeat: 3\n", "2: repeat: is not a known key (did you mean repeats?)"),
        ("metrics: {}\n", "2: metrics: belongs into a job"),
        ("matrix: {}\n", "2: matrix: is empty: nothing would run"),
        ("matrix:\n", "2: matrix: is empty: nothing would run"),
        ("matrix: [1]\n", "2: matrix: must be a mapping, not a list"),
        ("experiments: [1]\n", "2: experiments[0]: must be a mapping, not 1"),
        ("experiments: []\n", "2: experiments: is empty: nothing would run"),
        ("experiment: {}\n", "2: experiment.size: needs a size"),
        ("matrix:\n  size: []\n", "3: matrix.size: has no values: nothing would run"),
        ("matrix: {size: [2, 2]}\n", "2: matrix.size: has the value 2 2 times"),
        ("matrix: {size: [0]}\n", "2: matrix.size[0]: must be a whole number from 1 to 1,000,000, not 0"),
        ("matrix: {size: [true]}\n", "2: matrix.size[0]: must be a whole number from 1 to 1,000,000, not true"),
        (
            "matrix: {size: [1]}\nexperiment: {size: 1}\n",
            "3: experiment: matrix is given, too: only one of matrix, experiment, experiments is possible",
        ),
        ("matrix: {size: [1], x: [1]}\nparameters: {x: [1]}\n", "3: parameters.x: is in matrix, too (line 2)"),
        ("parameters: {size: [1]}\n", "2: parameters.size: is a name that every cell has: choose another name"),
        ("parameters: {x: [[1]]}\n", "2: parameters.x[0]: must be text, a number, true or false, not a list"),
        ("repeats: 0\n", "2: repeats: must be a whole number from 1 to 1,000,000, not 0"),
        ("repeats: 300000\n", "2: repeats: 300,000 runs, at most 200,000 are possible"),
        ("repeats: {min: 5, max: 3}\n", "2: repeats: max (3) is smaller than min (5)"),
        (
            "repeats: {min: 1, max: 3}\n",
            "2: repeats: min and max need `until: {metric: NAME, relative-ci: 0.05}`, or else write one number",
        ),
        (
            "repeats: {min: 5, max: 9, until: {metric: time, relative-ci: 0.05}}\n",
            "2: repeats.until.metric: must be a metric of the job, but the job has none",
        ),
        ("order: interleave\n", '2: order: "interleave" is not a known value (did you mean interleaved?)'),
        ("timeout: soon\n", '2: timeout: "soon" is not a duration (try 90s, 30m or 2h)'),
        ("timeout: 0\n", "2: timeout: 0 is not a duration (try 90s, 30m or 2h)"),
        ("budget: {cost: -1}\n", "2: budget.cost: must be a number of 0 or more, not -1"),
        ("budget: {cost: 5}\n", "2: budget.cost: needs a price in at least one target"),
        (
            "targets: {a: {type: kubernets}}\n",
            '2: targets.a.type: "kubernets" is not a known value (did you mean kubernetes?)',
        ),
        (
            "targets: {a: {context: c}}\n",
            "2: targets.a.context: is for targets of the type kubernetes, this one is local",
        ),
        ("targets: {}\n", "2: targets: has no target: leave the key out for runs on this machine"),
        ("exclude: [{sizes: 1}]\n", "2: exclude[0].sizes: is not a known parameter (did you mean size?)"),
        ("exclude: [{size: 1}]\n", "jobs.a: runs nowhere: at no size, on no machine, or all of its cells are excluded"),
        ("minicluster: {containers: x}\n", '2: minicluster.containers: must be a list of containers, not "x"'),
        ("minicluster: {containers: [x]}\n", "must be a mapping, not text"),
        (
            "minicluster:\n  pods: {}\n",
            "3: minicluster.pods: is not a known field of a MiniCluster (did you mean pod?)",
        ),
        (
            "minicluster:\n  pod:\n    label: {}\n",
            "4: minicluster.pod.label: pod.label: unknown field, did you mean labels?",
        ),
    ],
)
def test_a_wrong_key_is_reported_with_line_and_name(text: str, expected: str) -> None:
    assert any(line.endswith(expected) and line.startswith("exp.yaml:") for line in problems(JOB + text)), problems(
        JOB + text
    )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("comand: x", "3: jobs.a.comand: is not a known key (did you mean command or commands?)"),
        ("qqqqq: 1", "3: jobs.a.qqqqq: is not a known key"),
        ("command: 5", "3: jobs.a.command: must be text, not 5 (put it in quotes)"),
        ("command: [x]", "3: jobs.a.command: must be text, not a list"),
        ("command: run {{stesp}}", "3: jobs.a.command: {{stesp}} is not a known parameter (did you mean steps?)"),
        ("command: run {{zones}}", "3: jobs.a.command: {{zones}} is not a known parameter"),
        ("command: |\n      one\n      two {{x}}", "5: jobs.a.command: {{x}} is not a known parameter"),
        ("environment: {A: '{{x}}'}", "3: jobs.a.environment.A: {{x}} is not a known parameter"),
        ("environment: {A=B: c}", "3: jobs.a.environment.A=B: is no name of an environment variable: it has a '='"),
        ("size: 1\n    sizes: [2]", "4: jobs.a.sizes: stands for the same as size: give one of them"),
        ("tasks: '{{steps}}0x'", '3: jobs.a.tasks: must be a whole number from 0 to 10,000,000, not "100x"'),
        ('options: "\'"', "3: jobs.a.options: cannot be split into words: No closing quotation"),
        ("files: [/etc/passwd]", '3: jobs.a.files[0]: "/etc/passwd" must be relative to the folder of this file'),
        ("files: [a/../../b]", '3: jobs.a.files[0]: "a/../../b" must not lead out of its folder: no ".."'),
        ("files: [{out: ../*}]", '3: jobs.a.files[0].out: "../*" must not lead out of its folder: no ".."'),
        ('files: ["a\\nb"]', "3: jobs.a.files[0]: 'a\\nb' is not a path"),
        ("command: ''", "3: jobs.a.command: is empty"),
        ("files: [{in: a, out: b}]", "3: jobs.a.files[0]: must be a path, or one of {in: PATH}"),
        ("files: [3]", "3: jobs.a.files[0]: must be a path, or one of {in: PATH}"),
        ("metrics: {t: {}}", "3: jobs.a.metrics.t: needs one of regex and json"),
        (
            "metrics:\n      t:\n        regex: '(['",
            "5: jobs.a.metrics.t.regex: is no regular expression of Python: unterminated character set at character 2",
        ),
        ("metrics: {t: {regex: x}}", "3: jobs.a.metrics.t.regex: needs a group: put parentheses around the number"),
        (
            "metrics: {t: {regex: '(a{99999999999})'}}",
            "is no regular expression of Python: the repetition number is too",
        ),
        ("metrics: {t: {regex: '" + "(" * 3000 + ")" * 3000 + "'}}", "is no regular expression of Python"),
        ("metrics: {t: {json: a..b}}", '3: jobs.a.metrics.t.json: "a..b" is not a path in JSON'),
        ("metrics: {t: {json: a, from: ../x}}", '3: jobs.a.metrics.t.from: "../x" must not lead out of its folder'),
        ("check: {exit: 256}", "3: jobs.a.check.exit: must be a whole number from 0 to 255, not 256"),
        (
            "resources: {limits: {cpu: lots}}",
            "3: jobs.a.resources.limits.cpu: resources.limits.cpu: must be a quantity",
        ),
        ("commands: x\n    pre_command: y", '3: jobs.a.commands: must be a mapping, not "x"'),
        ("volumes: [x]\n    existing_volumes: 3", "4: jobs.a.existing_volumes: must be a mapping, not 3"),
        ("limits: 3", "3: jobs.a.limits: must be a mapping, not 3"),
        ("manifest: {kind: Job}", "3: jobs.a.manifest: must be an object of Kubernetes, with apiVersion and kind"),
        ("manifest: gone.yaml", "3: jobs.a.manifest: gone.yaml: No such file or directory"),
        (
            "manifest: {apiVersion: batch/v1, kind: Job}",
            "3: jobs.a.manifest: needs Kubernetes, and the target local is local: declare targets, or exclude",
        ),
    ],
)
def test_a_wrong_key_of_a_job_is_reported_with_line_and_name(keys: str, expected: str) -> None:
    command = "" if keys.startswith("command") else "\n    command: run"
    others = "parameters: {steps: [10]}\nvariables: {zones: [a, b]}\n"
    found = problems(f"jobs:\n  a:\n    {keys}{command}\n{others}")
    assert any(expected in line for line in found), found


def test_a_path_is_checked_with_its_names_filled_in() -> None:
    text = "parameters: {x: [a, ../b]}\njobs:\n  a:\n    command: run\n    files: [{out: 'c/{{x}}'}]\n"
    rule = '"c/../b" must not lead out of its folder: no ".."'
    assert problems(text) == [f"exp.yaml:5: jobs.a.files: {rule}"]


def test_names_in_fields_of_the_minicluster_are_checked() -> None:
    text = JOB + "minicluster:\n  pod:\n    labels: {size: '{{size}}', other: '{{othr}}'}\n"
    rule = "{{othr}} is not a known parameter (use one of cell, job, machine, size, target)"
    assert problems(text) == [f"exp.yaml:4: minicluster.pod.labels.other: {rule}"]
    pod = experiment(text.replace(", other: '{{othr}}'", "")).cells[0].job.minicluster["pod"]
    assert pod == {"labels": {"size": "1"}}


def test_keys_for_all_jobs_are_known_without_jobs() -> None:
    found = problems("repeats: 3\nwarmup: 1\nretry: 1\ntimeout: 1m\n")
    assert found == ["exp.yaml:1: jobs: needs at least one job: NAME: {command: …}"]


def test_all_problems_are_reported_at_once_in_order_of_lines() -> None:
    found = problems("repeats: x\njobs:\n  '../a': {}\n  b: {retry: -1, command: y}\nsed: 1\n")
    assert [line.split(": ")[0] for line in found] == [
        "exp.yaml:1",
        "exp.yaml:3",
        "exp.yaml:3",
        "exp.yaml:4",
        "exp.yaml:5",
    ]


def test_a_matrix_of_a_million_cells_is_refused() -> None:
    values = ", ".join(map(str, range(1000)))
    rule = "1,000,000 combinations of sizes, jobs, targets and parameters, at most 20,000 are possible"
    found = problems(f"{JOB}parameters:\n  x: [{values}]\n  y: [{values}]\n")
    assert found == [f"exp.yaml:3: parameters.x: {rule}"]


def test_files_of_the_experiment_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(
        "parameters: {steps: [1]}\njobs:\n  a:\n    command: run\n"
        "    files: [data, {template: a.in}, {template: b.in}]\n"
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "a.in").write_text("run {{steps}}\n\nrun {{stesp}}\n")
    (tmp_path / "b.in").write_bytes(b"\xff")
    with pytest.raises(InvalidExperiment) as caught:
        read(str(path))
    assert str(caught.value).splitlines() == [
        f"{path}:5: jobs.a.files: {tmp_path}/a.in:3: {{{{stesp}}}} is not a known parameter (did you mean steps?)",
        f"{path}:5: jobs.a.files: {tmp_path}/b.in cannot be a template: not UTF-8 text (use `in` for a file that is "
        "copied as it is)",
    ]
    (tmp_path / "a.in").write_text("run {{steps}}\n")
    (tmp_path / "b.in").write_text("")
    found = read(str(path))
    assert (found.name, found.folder) == (tmp_path.name, str(tmp_path))
    assert (found.cells[0].job.inputs, found.cells[0].job.templates) == (("data",), ("a.in", "b.in"))


def test_a_manifest_may_be_a_file_and_numbers_stay_numbers(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "apiVersion: batch/v1\nkind: Job\nspec:\n  parallelism: '{{size}}'\n  template:\n"
        "    metadata: {labels: {size: '{{size}}'}}\n"
        "    spec: {containers: [{args: ['{{size}}'], env: [{name: A, value: '{{size}}'}]}]}\n"
    )
    path = tmp_path / "experiment.yaml"
    path.write_text("matrix: {size: [2]}\ntargets: {k: {type: kubernetes}}\njobs: {a: {manifest: job.yaml}}\n")
    spec = read(str(path)).cells[0].job.manifest["spec"]
    assert spec["parallelism"] == 2
    assert spec["template"]["metadata"]["labels"] == {"size": "2"}
    assert spec["template"]["spec"]["containers"] == [{"args": ["2"], "env": [{"name": "A", "value": "2"}]}]
    (tmp_path / "job.yaml").write_text("kind: Job\nspec: [\n")
    with pytest.raises(InvalidExperiment, match=r":3: jobs.a.manifest: job.yaml:3: not YAML: "):
        read(str(path))


def test_the_example_is_valid() -> None:
    found = read(str(Path(__file__).parents[3] / "examples/experiments/lammps-scaling.yaml"))
    assert [(cell.id, cell.repeats) for cell in found.cells] == [
        (f"lammps-{size}", Repeats(least=3, most=3, warmup=1)) for size in (1, 2, 4)
    ]
    line = "Loop time of 0.874 on 4 procs for 20 steps with 608 atoms"
    assert re.search(found.cells[0].job.metrics[0].regex, line)


def test_the_default_target_is_of_the_chosen_type() -> None:
    assert read_text(JOB, "x.yaml", "kubernetes").cells[0].target == "kubernetes"
    assert read_text(JOB, "x.yaml", "kubernetes").targets == (Target(name="kubernetes", type="kubernetes"),)
    declared = "targets: {mine: {type: instance}}\n" + JOB
    assert read_text(declared, "x.yaml", "kubernetes").targets == (Target(name="mine", type="instance", line=1),)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"name: \xff\n")
    with pytest.raises(InvalidExperiment, match="not UTF-8 text: invalid start byte at byte 6"):
        read(str(path))
