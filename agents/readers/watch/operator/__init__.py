"""The operator's view: the truth, errors, lag and refusals. Nothing of it is private, and none of it is public."""
