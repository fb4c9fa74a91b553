"""The tree of brokers: links, handshakes, membership and loss."""
