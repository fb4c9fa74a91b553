"""Accounting: banks, associations, their usage, fair share, limits and priorities. Pure: time is an argument."""
