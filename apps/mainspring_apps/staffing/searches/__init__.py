"""Saved searches: workers who are listed, and who is told of them, at once or every morning."""
