"""The checks that need a GPU, in one short run: `python -m bench.gpu`. Without a GPU it says so and ends.

Each part has a file: `registration` (what the driver does with memory of segments), `copies` (how fast bytes get to the
GPU), `neighbours` (other processes), `batches` (a PyTorch learner, by each way). `shared` makes the memory, `finding`
is the result of a check.
"""
