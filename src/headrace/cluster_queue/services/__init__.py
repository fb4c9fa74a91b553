"""The gRPC services of fluxion, Fluence and fluxqueue's plugin: messages, graphs and server."""
