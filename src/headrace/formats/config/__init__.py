"""An instance's configuration (flux-config(5)): its files, the keys that it may have, and what is wrong with one."""
