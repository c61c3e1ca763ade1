"""What reproduces the paper: the AR(1) releaser, with Gaussian or with binomial noise."""
