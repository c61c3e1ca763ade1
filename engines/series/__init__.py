"""Engine `series`: one number a step, or several. What computes it is in `engines.sequence`."""
