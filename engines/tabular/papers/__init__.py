"""What reproduces the papers, or compares with them: rounds of select, measure and fit."""
