"""How physics is evaluated and differentiated."""
