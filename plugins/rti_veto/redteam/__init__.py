"""A labelled set of leaks and of good corrections over the pocket and τ² worlds."""
