"""The change model, its planning and assembly, the publishing protocol, and the adapters around them."""
