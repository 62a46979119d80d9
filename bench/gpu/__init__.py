"""The checks that need a GPU, in one short run: `python -m bench.gpu`. Without a GPU it says so and is done.

A file a part: `registration` (what the driver does with memory of segments), `copies` (how fast bytes get there),
`neighbours` (other processes), `batches` (a PyTorch learner, by each way). `shared` makes the memory, `finding` is what
a check answers.
"""
