"""`python -m nonic run -- PROGRAM`."""

from nonic import main

main()
