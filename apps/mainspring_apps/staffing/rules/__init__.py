"""The rules of the marketplace, pure: no database, no clock, no provider."""
