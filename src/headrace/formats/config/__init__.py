"""An instance's configuration (flux-config(5)): its files, its schema, and the checks of both."""
