"""The forms of requests, a file for each family of services: `TABLE[method]` is the form of a method's payload."""
