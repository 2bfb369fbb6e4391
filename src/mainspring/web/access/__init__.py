"""Access: who asks over HTTP, and how people sign in."""
