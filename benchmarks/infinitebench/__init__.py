"""InfiniteBench (arXiv 2402.13718): its synthetic tasks generated, its files read, its two scorers in use."""
