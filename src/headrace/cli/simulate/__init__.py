"""`headrace simulate`: compares queue policies by simulation."""
