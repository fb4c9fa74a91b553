"""Installs a program in a cluster and removes it: charts, install files, images."""
