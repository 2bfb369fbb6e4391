"""What a company had before: its own tables, mapped by views, become rows of the marketplace, once."""
