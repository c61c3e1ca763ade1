"""One number a step, or several: see `engine`."""
