"""Error of releases that protect people, not events: `make bench-people`."""
