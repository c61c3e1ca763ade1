"""What every engine stands on: its contract, exact noise, accounting, counters and the layout of its state."""
