"""Finds why a group is in its state: `known_facts` reads the log, `rules` decide, `explanations` give the words."""
