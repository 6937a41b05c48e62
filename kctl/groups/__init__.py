"""All consumer groups of a cluster, of any client: collected periodically, judged, kept as one snapshot."""
