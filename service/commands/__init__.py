"""The commands of `turnwise`, a module a group. What loads torch is imported when it is needed."""
