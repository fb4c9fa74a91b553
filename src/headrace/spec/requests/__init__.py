"""The forms of requests, a file for each family of services: `TABLE[method]` is what a service's method takes."""
