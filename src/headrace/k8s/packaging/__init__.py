"""How a program is installed in a cluster and removed from it: charts, install files, images."""
