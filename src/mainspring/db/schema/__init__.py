"""What stands in a database: lines of tables and verbs, their migration, and who may do what with them."""
