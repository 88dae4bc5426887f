"""What notebooks show of results: short HTML with pictures, which needs no style sheet and no script."""
