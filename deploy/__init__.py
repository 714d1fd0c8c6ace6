"""How the bridge is shipped: image, Helm chart, and what is generated for them. Not part of the distribution."""
