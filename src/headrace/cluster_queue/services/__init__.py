"""The gRPC services of fluxion, Fluence and fluxqueue's plugin: the messages, the graphs behind them, the server."""
