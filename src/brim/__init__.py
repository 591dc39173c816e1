"""brim: fill the device to the brim, never over it."""
