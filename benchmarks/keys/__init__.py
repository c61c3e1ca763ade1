"""Keys that nobody listed, found in streams: engine `keys` beside what is published. Run as `make bench-keys`."""
