"""What a learner on an NVIDIA GPU needs of the driver: page-locked memory, asynchronous copies, events.

Nothing here is loaded, and no CUDA context made, before a learner asks for a GPU: see docs/gpu.md. Reading order:
`errors`, `driver` (the library), `device`, `event`, `pinned` (buffers of our own), `page_lock` (locks a segment where
it lies) and `page_locks` (shares these locks).
"""
