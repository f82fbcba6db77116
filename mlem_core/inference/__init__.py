"""How sure a result is: resampling, confidence intervals, tests, and why two layers are alike."""
