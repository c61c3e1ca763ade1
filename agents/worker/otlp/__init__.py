"""The worker's metrics pushed by OpenTelemetry (OTLP over HTTP), where `[job] otlp_endpoint` says so."""
