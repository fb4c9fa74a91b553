"""The forms of request payloads, one file for each family of services: `TABLE[method]` is a method's form."""
