"""An analysis: its specification, its run, what is selected of it, and its results."""
