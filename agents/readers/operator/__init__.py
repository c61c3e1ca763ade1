"""What an operator asks of a job: how far it has come, and what keeps it from running. Asks, and changes nothing."""
