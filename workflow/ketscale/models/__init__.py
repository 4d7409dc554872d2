"""Models: plain torch modules, one file per family; `catalogue` names them."""
