"""The sinker: takes messages out of the storage and gives them to the user's handler, each acknowledged on its own."""
