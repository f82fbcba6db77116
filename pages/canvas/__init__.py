"""The canvas: why two layers are similar, with the maps of the stimuli in both."""
