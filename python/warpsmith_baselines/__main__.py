"""`python3 -m warpsmith_baselines`: the same process from files, for requests made by hand."""
from warpsmith_baselines.serve import main

main()
