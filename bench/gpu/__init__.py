"""The checks that need a GPU, in one short run: `python -m bench.gpu`. Without a GPU it says so and is done.

A file a kind of check: `registration` (what the driver does with memory of segments), `copies` (how fast bytes get
there), `neighbours` (other processes). `shared` makes the memory, `finding` is what a check answers.
"""
