"""From regions to choices: the ways that a region can run, timed by the core's tuner."""
