"""Growing blocks, mode `default`: see `engine`."""
