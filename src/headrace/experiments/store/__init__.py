"""The folder of an experiment: files, results, the lock, and how far it is."""
