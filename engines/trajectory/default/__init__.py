"""Mode `default`: histograms that are measured, and walks that follow them; see `mode`."""
