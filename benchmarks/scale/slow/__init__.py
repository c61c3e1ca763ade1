"""Engine `slow`, as another distribution would bring it: it counts, and takes its time."""
