"""What starts, feeds and looks at processes, on Linux."""
