"""What is published, and how it is made: `./release`, see docs/install.md."""
