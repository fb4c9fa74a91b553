"""The report of an experiment, and the comparison of two."""
