"""What an engine is tried by: the contract checks, coupled runs and the black-box sampler."""
