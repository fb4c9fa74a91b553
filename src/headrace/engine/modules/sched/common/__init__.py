"""Common parts of both schedulers: RFC 27 and RFC 28, options, reasons and estimates."""
