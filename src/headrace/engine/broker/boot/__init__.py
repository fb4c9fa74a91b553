"""The boot of a broker: its rank, size and neighbours (RFC 13, configuration, Slurm)."""
