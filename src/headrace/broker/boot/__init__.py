"""How a broker learns its rank, its size and its neighbours (RFC 13, configuration, Slurm)."""
