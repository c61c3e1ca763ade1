"""Error of the spatial engines on every stream we have, as in the papers: `make bench-spatial` (QUICK=1: two minutes).

Mean relative error of random rectangles (small, medium, large: docs/notes/0006), over 12 steps after t0, at epsilon
0.5, 1 and 2 for one event: `default`, `paper`, and the papers' baselines (`benchmarks.papers.spatial`). All but
`default` spend epsilon on an insert and again on its expiry: where a stream has a ttl, that favours them.
`sources` are the data, `modes` what is compared and the questions, `runs` two processes that run
it, `report` tables, plots and the last line.
"""
