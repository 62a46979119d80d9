"""The checks of `shmreplay doctor`."""
