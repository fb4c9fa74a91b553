"""The forms of request payloads, by family of services: `TABLE[method]` is a method's form."""
