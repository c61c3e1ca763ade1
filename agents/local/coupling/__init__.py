"""Coupled runs of every engine, from raw records to public bytes.

Two inputs differ in one protected unit. Both go through ingest, stepper and publisher; every mechanism of the second
run gives what the first one gave. Public bytes must be equal, and the forced values must cost what is claimed at most.
`settings` are the streams of the engines' contract cases, `rows` their raw records, `inputs` neighbouring inputs,
`adversary` chooses outputs, `runs` is a coupled pair, `dearest` one that uses up its claim, `claims` and `declared`
what its noise may be; `mutants` halve every scale of every engine, to show that a pair can fail.
"""
