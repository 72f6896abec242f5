"""Where memories come to rest. Each room is one engine; none imports another."""
