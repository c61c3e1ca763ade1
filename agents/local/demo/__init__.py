"""The demo: everything a deployment has, on one machine."""
