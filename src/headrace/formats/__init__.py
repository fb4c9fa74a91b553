"""Formats and values that several programs read and write: Flux's documents, configuration, metrics, plots. Pure."""
