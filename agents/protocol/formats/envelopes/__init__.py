"""What stands around an event, and beside it in a record."""
