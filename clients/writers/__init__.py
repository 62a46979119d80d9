"""Writers: of one stream of steps, of many streams, and of whole arrays."""
