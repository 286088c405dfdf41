"""L2: FLOPs and bytes of every operation of a forward pass, from shapes alone."""
