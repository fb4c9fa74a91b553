"""Starting, feeding and inspecting processes on Linux."""
