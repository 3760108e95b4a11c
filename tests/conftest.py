"""Puts this folder on the path, for the modules that several test folders share."""
