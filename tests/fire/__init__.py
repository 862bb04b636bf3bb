"""`make fire`: what must hold while everything around it is killed, cut, delayed and lost."""
