"""The life of arenas: created, adopted, restored, freed of dead processes, dropped."""
