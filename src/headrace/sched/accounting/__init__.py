"""Accounting: which part of an instance each user and bank gets. Pure, like the rest of the wing.

Nothing is imported here: a program that needs one file does not load the others.
"""
