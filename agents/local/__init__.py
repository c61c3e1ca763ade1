"""What runs on one machine without a cluster of yours: the library, simulate, tune, replay, audit, dev and the demo."""
