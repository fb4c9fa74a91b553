"""How a broker determines its rank, size and neighbours (RFC 13, configuration, Slurm)."""
