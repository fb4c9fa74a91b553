"""A Flux instance: brokers, their services, and the programs that start and supervise jobs."""
