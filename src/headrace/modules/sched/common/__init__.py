"""What both schedulers share: RFC 27 and RFC 28, options, reasons and estimates."""
