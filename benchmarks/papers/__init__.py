"""Methods of the papers that the job is compared with: plain functions of a whole stream, for benchmarks alone."""
