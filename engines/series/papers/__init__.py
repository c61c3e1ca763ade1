"""What reproduces the papers, or compares with them: the AR(1) releaser and the baselines of series."""
