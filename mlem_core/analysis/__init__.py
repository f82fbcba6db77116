"""An analysis: what is asked, its run, what is selected of it, and its results."""
