"""L5: steady states of a served load in closed form, and the predictions made from them."""
