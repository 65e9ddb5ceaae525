"""Native servers as processes of this host."""
