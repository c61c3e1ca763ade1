"""Questions to a stream's measurements: conditions and regions as people write them, answers with standard errors."""
