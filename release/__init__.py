"""What a release says about the packages it depends on: a bill of materials, and their licenses."""
