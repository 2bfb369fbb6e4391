"""What every application stands on: settings, statements, events and who may cause them, HTTP, texts, commands.

An application says what is its own, as values: a class of settings, a table of parts, a desk, its endpoints. Nothing
here knows one.
"""
