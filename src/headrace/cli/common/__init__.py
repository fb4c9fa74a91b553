"""What commands share: options, errors, tables and formats."""
