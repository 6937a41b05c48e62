"""The sinker claims messages from the storage, calls the user's handler, and acknowledges each message separately."""
