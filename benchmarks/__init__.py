"""`make bench`: the figures that the project promises, each beside a yardstick measured in the same run."""
