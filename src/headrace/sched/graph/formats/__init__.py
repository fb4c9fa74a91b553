"""What graphs are read from, and what graphs and allocations are written as."""
