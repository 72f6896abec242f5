"""The builtin engine: PostgreSQL, embedded or yours."""
