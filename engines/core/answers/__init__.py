"""What engines answer from their own measurements: counts with standard errors. Post-processing of public records."""
