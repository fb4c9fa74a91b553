"""Queue policies: which pending job starts next, which have reservations, and why others wait.

Like the graph, this is a library without I/O: time is an argument, in whole seconds, and decisions are returned.
Nothing is imported here: a program that needs one file, such as `forecast`, does not load the graph.
"""
