"""What all commands show alike: their manual, and how far they are."""
