"""Jobs of the engine itself: maintenance, and what watches over the rest."""
