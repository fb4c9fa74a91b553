"""The schedulers: common parts, first come first served (`simple`), and the resource graph (`graph`)."""
