"""The views of the engines of this distribution."""
