"""The counter with the least mean variance under pure DP: a strategy that was optimised for running sums."""
