"""The ends of shmreplay that actors and learners hold: clients, tables, writers, the embedded server."""
