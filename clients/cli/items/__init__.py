"""Items as commands show, export and import them."""
