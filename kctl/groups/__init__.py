"""All consumer groups of a cluster, of any client: collected again and again, judged, kept as one snapshot."""
