"""Client calls of users' commands: Jobs that are Flux clusters, and containers of any cluster."""
