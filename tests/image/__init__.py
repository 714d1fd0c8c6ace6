"""Builds and runs the image's root file system without a Docker engine. Needs Linux, user namespaces and util-linux."""
