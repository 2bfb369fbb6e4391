"""How we talk to PostgreSQL: connections, dialogues and what drives them, the fence, errors in our words."""
