"""The default: a bank of Kalman filters for each field."""
