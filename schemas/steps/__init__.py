"""Public steps of time: how long they are, and where each begins and ends."""
