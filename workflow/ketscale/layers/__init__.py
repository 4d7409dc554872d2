"""What models of several families are made of: dense layers, dropout, losses and random numbers."""
