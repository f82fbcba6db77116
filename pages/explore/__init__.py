"""The screen Explore: the layers, the pairs of them, their profiles and the stimuli."""
