"""Engine `keys`: which keys nobody listed enough people have, and how many have them."""
