"""What each engine is audited on: `scene` says what that is, `every` has them all."""
