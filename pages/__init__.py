"""The screens: a file each, which selects, calls and draws; `parts` has what they share."""
