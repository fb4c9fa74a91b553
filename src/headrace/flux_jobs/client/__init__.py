"""Users' calls about Jobs that are Flux clusters, and about the containers of any cluster."""
