"""What releases at every step cost against one batch release at the end: `make bench-price`."""
