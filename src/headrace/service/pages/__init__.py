"""The pages for browsers. They need no scripts, load nothing from other hosts and have nothing inline."""
