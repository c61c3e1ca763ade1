"""Error of the spatial engines on every stream we have, as in the papers: `make bench-spatial` (QUICK=1: two minutes).

Mean relative error of random rectangles (small, medium, large: docs/notes/0006), over 12 steps after t0, at epsilon
0.5, 1 and 2 for one event: `default`, `paper`, and the papers' baselines (`benchmarks.papers.spatial`). All but
`default` spend epsilon on an insert and again on its expiry: where a stream has a ttl, that favours them.
Then (`--early 0`) each stream from its beginning with nothing gathered, steps 1 to 10 after a release at step 0, one by
one, and how far the total is off: that is how most streams that are deployed begin.
`sources` are the data, `modes` what is compared and the questions, `runs` two processes that run
it, `report` tables, plots and the last line.
"""
