//! Recipes: the model, where each value stands, and what is wrong with it.
