"""Hardware profiles: what a device can do, where each number comes from, how to load one."""
