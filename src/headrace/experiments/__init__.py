"""Experiments: a matrix of runs from one file, their results in one folder, and a report."""
