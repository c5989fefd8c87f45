"""What one run of a function read, called and wrote."""
