"""What is shipped: its files, its public names, and what importing it loads."""
