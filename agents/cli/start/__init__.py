"""Commands of the first hour: `init` and `dev`."""
