"""Mode `paper`: rounds of select, measure and fit, with what fits a model."""
