"""What an engine is tried by: the contract checks and coupled runs."""
