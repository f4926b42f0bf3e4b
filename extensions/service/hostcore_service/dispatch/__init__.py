"""What was recorded is launched, and watched to its end."""
