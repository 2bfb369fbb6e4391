"""How we talk to PostgreSQL: connections, flows and what drives them, the fence, errors in our words."""
