"""How many users are in each public state: see `engine`."""
