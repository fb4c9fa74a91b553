"""Commands that store, save and restore data of an instance."""
