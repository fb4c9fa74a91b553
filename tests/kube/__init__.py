"""Tests on a real Kubernetes; a package, so that the fixtures that start one end after the last of them."""
