"""The runner of kind `model`: a provider's API, asked by a process of its own for each task.

The library that speaks to providers costs 75 MB and seconds of import, so no daemon ever loads it: `profile` describes
the program `call` as if it were a CLI agent. `endpoint` and `reply` are light and used on both sides; `answer`,
`asking`, `backoff`, `dialects`, `history` and `refusals` belong to the program alone.
"""
