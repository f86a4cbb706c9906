"""One module for each revision; each is frozen once it was released."""
