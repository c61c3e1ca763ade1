"""Commands for who reads the public topics."""
