"""The longer commands of the command line, each with what it prints."""
