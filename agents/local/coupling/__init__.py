"""Coupled runs of every engine, from raw records to public bytes.

Two inputs differ in one protected unit. Both go through ingest, stepper and publisher; every mechanism of the second
run returns the value of the first one. Public bytes must be equal, and the forced values must not cost more than is
claimed.
`inputs` draws neighbouring inputs, `runs` couples a pair, `dearest` looks for one that uses up its claim, `claims` says
what its noise may be, and `mutants` halves every scale of every engine, to show that a pair can fail. `audit` does all
of it for a configured stream.
"""
