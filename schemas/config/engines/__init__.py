"""What engines are and can do, how they are found, and the sections of each: its domains and its options."""
