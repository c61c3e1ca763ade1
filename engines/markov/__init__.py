"""Engine `markov`: how many users are in each public state. What computes it is in `engines.sequence`."""
