"""`privstream init`: a first configuration for events that are not yet described."""
