"""Formats that several programs share: Flux's documents, configuration, metrics, plots. Pure."""
