"""Who uses the dashboard and what they may see: sign-in, sessions, reviews of rights, checks of requests."""
