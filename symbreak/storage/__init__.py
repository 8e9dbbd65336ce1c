"""What must survive: files, locks, checkpoints, and the replay on the device and on the disk."""
