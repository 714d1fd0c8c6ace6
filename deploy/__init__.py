"""How the bridge is shipped: the image, the Helm chart, and what is generated for them. Not part of the distribution."""
