"""What reproduces the papers, or compares with them: PHDStream and its baselines."""
