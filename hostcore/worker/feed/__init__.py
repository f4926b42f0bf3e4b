"""The feed: which rows come when. The host owns the order, so that a run can be resumed exactly."""
