"""What learns a chain that is not known."""
