"""The image's steps and its check without a Docker engine; needs Linux with user namespaces and util-linux."""
