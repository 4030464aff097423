"""The eight roles as shipped: a persona and skills that do real work with no model. Yours go beside them."""
