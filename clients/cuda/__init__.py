"""What a learner on an NVIDIA GPU needs from the driver: page-locked memory, asynchronous copies, events.

The library is loaded, and a CUDA context made, only when a learner asks for a GPU: see docs/gpu.md. Reading order:
`errors`, `driver` (the library), `device`, `event`, `pinned` (page-locked buffers), `page_lock` (page-locks a segment)
and `page_locks` (shares these locks).
"""
