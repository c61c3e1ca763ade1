"""What reproduces the paper, or compares with it: MAP under a prior, MLE, the prior alone and raw counts."""
