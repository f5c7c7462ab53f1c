"""Speed and memory of slatewise, as ratios measured in one run: `make bench`."""
