"""What is audited beside the engines, and all of it together: `every`."""
