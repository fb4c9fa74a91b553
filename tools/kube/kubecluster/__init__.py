"""A real Kubernetes on one Linux machine, for tests and developers: no Docker, no registry, no daemon of the machine.

Standard library only, so that `tools/kube/kube` runs with any Python >= 3.10, before anything is installed.
`docs/dev/kube-for-tests.md` is the page for users; each file here says what it is for.
"""
