"""Parts that commands share: options, errors, tables and formats."""
