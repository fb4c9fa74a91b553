"""Formats: graphs are read from them; graphs and allocations are written to them."""
