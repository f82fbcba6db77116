"""Speed and memory, side by side with what one would use instead. `make bench` runs them."""
