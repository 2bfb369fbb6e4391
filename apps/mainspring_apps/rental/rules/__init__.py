"""What is decided, without a database."""
