"""What reproduces the paper, or compares with it: its trees, and a grid of one level."""
