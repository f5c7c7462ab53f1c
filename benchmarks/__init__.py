"""Speed and memory of slatewise on this machine: against bounds, against other libraries, and as a function of size.

`python -m benchmarks` runs everything from the root of the repository; README.md says what is compared.
"""
