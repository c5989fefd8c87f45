"""A page of HTML per compiled function, and what notebooks show."""
