"""The `Problem` contract, and one folder for each family of problems."""
