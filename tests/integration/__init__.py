"""Real servers, hurt on purpose."""
