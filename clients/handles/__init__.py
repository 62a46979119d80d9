"""What all handles of a table share: attaching anew, waiting, random numbers."""
